/* A form that somebody writes in: what is not stored yet is not lost by accident, and Tab indents code. */

const HINT = "Tab indents; Esc, then Tab leaves";

export function mount(form) {
  guard(form);
  for (const area of form.querySelectorAll("textarea[data-code]")) indent(area);
  form.addEventListener("added", (event) => event.target.querySelectorAll("textarea[data-code]").forEach(indent));
  form.querySelector('[aria-invalid="true"], .field .error')?.scrollIntoView({ block: "center" });
}

function guard(form) {
  /* A form that came back with errors holds text that is stored nowhere. */
  let isDirty = form.querySelector(".error") !== null;
  form.addEventListener("input", () => (isDirty = true));
  form.addEventListener("submit", () => (isDirty = false));
  addEventListener("beforeunload", (event) => isDirty && event.preventDefault());
}

/* Escape gives the next Tab back to the page, so that the keyboard is never caught. */
function indent(area) {
  let leaves = false;
  const hint = document.createElement("p");
  hint.className = "help tab-hint";
  hint.textContent = HINT;
  area.after(hint);
  area.addEventListener("focus", () => (leaves = false));
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leaves = true;
    if (event.key !== "Tab" || event.shiftKey || leaves || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    area.setRangeText("  ", area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input", { bubbles: true }));
  });
}
