/* One rollout against a verdict: digits choose, Enter stores and goes on, cited events are marked. */

export function mount(element) {
  for (const cites of element.querySelectorAll("[data-cites]")) {
    for (const seq of cites.dataset.cites.split(" ").filter(Boolean)) {
      document.getElementById(`e${seq}`)?.classList.add("cited");
    }
  }
  const form = element.querySelector("[data-label]");
  if (!form) return;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return;
    const radio = event.target.matches?.("[type=radio]");
    if (!radio && event.target.closest?.("input, select, textarea, button, a, summary")) return;
    const choice = /^[1-9]$/.test(event.key) && form.querySelector(`[data-digit="${event.key}"]`);
    if (choice) {
      choice.checked = true;
      choice.focus({ preventScroll: true });
    } else if (event.key === "Enter") {
      form.requestSubmit(form.querySelector("button"));
    } else return;
    event.preventDefault();
  });
}
