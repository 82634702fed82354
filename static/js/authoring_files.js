/* Files of a task: a further pair of name and text, numbered on. */

export function mount(box) {
  const button = box.querySelector("[data-add-file]");
  button?.addEventListener("click", () => {
    const all = box.querySelectorAll("[data-file]");
    const last = all[all.length - 1];
    const next = last.cloneNode(true);
    const number = all.length;
    for (const hint of next.querySelectorAll(".tab-hint")) hint.remove();
    for (const field of next.querySelectorAll("input, textarea")) {
      const id = `${box.id}-${field.matches("input") ? "p" : "t"}${number}`;
      const label = next.querySelector(`label[for="${field.id}"]`);
      if (label) label.htmlFor = id;
      if (label && field.matches("input")) label.textContent = `Name of file ${number + 1}`;
      field.id = id;
      field.value = "";
    }
    last.after(next);
    next.dispatchEvent(new Event("added", { bubbles: true }));
    next.querySelector("input").focus();
  });
}
