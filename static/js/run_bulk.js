/* Ticked rollouts of a run: the box in the head ticks what the filter shows, Space the row under the cursor. */
import { tickUnderCursor } from "./review_ticks.js";

export function mount(form) {
  const table = document.querySelector("[data-rows]");
  const all = table.querySelector("[data-tick-all]");
  const words = form.querySelector("[data-ticked]");
  const idle = words.textContent;
  const boxes = () => [...table.querySelectorAll("tbody tr:not([hidden]) input[name=rollout]")];
  const draw = () => {
    const shown = boxes();
    const n = table.querySelectorAll("input[name=rollout]:checked").length;
    words.textContent = n ? `${n} ticked` : idle;
    form.querySelector("button").disabled = n === 0;
    all.checked = shown.length > 0 && shown.every((box) => box.checked);
    all.indeterminate = !all.checked && n > 0;
  };
  all.addEventListener("change", () => {
    for (const box of boxes()) box.checked = all.checked;
    draw();
  });
  table.addEventListener("change", (event) => event.target !== all && draw());
  document.addEventListener("keydown", (event) => tickUnderCursor(event, table));
  draw();
}
