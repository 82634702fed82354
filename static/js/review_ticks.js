/* Ticked rows and the bar of what can be done with them. Space ticks the row under the cursor of the list. */

export function mount(form) {
  const bar = form.querySelector("[data-bulk]");
  if (!bar) return;
  const words = bar.querySelector("[data-ticked]");
  const idle = words.textContent;
  const draw = () => {
    const n = form.querySelectorAll("input[name=item]:checked").length;
    words.textContent = n ? `${n} ticked` : idle;
    for (const button of bar.querySelectorAll("button")) button.disabled = n === 0;
  };
  form.addEventListener("change", draw);
  form.addEventListener("submit", (event) => {
    const n = form.querySelectorAll("input[name=item]:checked").length;
    if (event.submitter?.value === "delete" && !confirm(`Delete ${n} items from the queue? Marks stay with their rollouts.`)) event.preventDefault();
  });
  document.addEventListener("keydown", (event) => tickUnderCursor(event, form));
  draw();
}

export function tickUnderCursor(event, scope) {
  if (event.key !== " " || event.target.closest("input, select, textarea, button, summary")) return;
  const tick = scope.querySelector("[data-row].cursor input[type=checkbox]");
  if (!tick) return;
  tick.checked = !tick.checked;
  tick.dispatchEvent(new Event("change", { bubbles: true }));
  event.preventDefault();
}
