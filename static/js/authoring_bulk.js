/* The table of tasks: tick all of a page, say how many are ticked, ask before much is deleted. */

export function mount(card) {
  const picks = [...card.querySelectorAll("[data-pick]")];
  const page = card.querySelector("[data-pick-all]");
  const all = card.querySelector("[data-all]");
  const said = card.querySelector("[data-picked]");
  const form = card.querySelector("#bulk");
  if (!form) return;
  const show = () => {
    const n = picks.filter((pick) => pick.checked).length;
    page.checked = n > 0 && n === picks.length;
    page.indeterminate = n > 0 && n < picks.length;
    said.textContent = all.checked ? "all of them" : n ? `${n} ticked` : "none ticked";
    for (const button of form.querySelectorAll("button[name=action]")) button.disabled = !n && !all.checked;
  };
  page.addEventListener("change", () => {
    for (const pick of picks) pick.checked = page.checked;
    show();
  });
  /* Shift ticks from the last one to this one. */
  let last = null;
  for (const pick of picks) {
    pick.addEventListener("click", (event) => {
      if (event.shiftKey && last) {
        const [from, to] = [picks.indexOf(last), picks.indexOf(pick)].sort((a, b) => a - b);
        for (const between of picks.slice(from, to + 1)) between.checked = pick.checked;
      }
      last = pick;
      show();
    });
  }
  all.addEventListener("change", show);
  form.addEventListener("submit", (event) => {
    if (event.submitter?.value === "delete" && all.checked && !confirm("Delete all of these tasks?")) event.preventDefault();
  });
  addEventListener("pageshow", show);
  show();
}
