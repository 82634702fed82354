/* A list with a filter: completion in its field, ticked rows and what is done with them, the peek drawer. */
import { mountFilter } from "./list_filter.js";
import { mountPeek } from "./list_peek.js";
import { tickUnderCursor } from "./review_ticks.js";

export function mount(section) {
  const field = section.querySelector("[data-filter]");
  const words = field && mountFilter(field, section);
  const form = section.querySelector("[data-bulk]");
  if (form) mountBulk(form, words);
  const peek = document.getElementById("peek");
  if (peek) mountPeek(peek, section);
}

function mountBulk(form, words) {
  const all = form.querySelector("[data-tick-all]");
  const told = form.querySelector("[data-ticked]");
  const boxes = [...form.querySelectorAll("tbody input[type=checkbox]")];
  const exports = [...form.querySelectorAll("[data-export]")];
  const usual = exports.map((link) => link.getAttribute("href"));
  const draw = () => {
    const ticked = boxes.filter((box) => box.checked);
    told.textContent = ticked.length ? `${ticked.length} ticked` : told.dataset.idle;
    for (const button of form.querySelectorAll("[data-needs]")) button.disabled = ticked.length < Number(button.dataset.needs);
    all.checked = ticked.length > 0 && ticked.length === boxes.length;
    all.indeterminate = ticked.length > 0 && !all.checked;
    exports.forEach((link, i) => {
      const query = new URLSearchParams(ticked.map((box) => [box.name, box.value]));
      link.setAttribute("href", ticked.length ? `${usual[i].split("?")[0]}?${query}` : usual[i]);
    });
    if (ticked.length && words) fillQueues(form, words);
  };
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    draw();
  });
  form.addEventListener("change", (event) => event.target !== all && draw());
  document.addEventListener("keydown", (event) => tickUnderCursor(event, form));
  /* After the browser has put back what was ticked before a reload. */
  requestAnimationFrame(draw);
}

async function fillQueues(form, words) {
  const select = form.querySelector("[data-queues]");
  if (!select || select.dataset.filled !== undefined) return;
  select.dataset.filled = "";
  const { queues } = await words();
  for (const { id, name } of queues) select.prepend(new Option(name, id));
  if (queues.length) select.selectedIndex = 0;
}
