/* Tabs with the arrow keys of the ARIA pattern; the chosen one is remembered for the next rollout. */

const KEY = "switchback.tab";

export function mount(list) {
  const tabs = [...list.querySelectorAll('[role="tab"]')];
  const choose = (tab, focus) => {
    for (const other of tabs) {
      const on = other === tab;
      other.setAttribute("aria-selected", String(on));
      other.tabIndex = on ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = !on;
    }
    sessionStorage.setItem(KEY, tab.id);
    if (focus) tab.focus();
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => choose(tab, false));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) choose(tabs[(i + step + tabs.length) % tabs.length], true);
    });
  });
  const kept = document.getElementById(sessionStorage.getItem(KEY) ?? "");
  if (kept && tabs.includes(kept)) choose(kept, false);
}
