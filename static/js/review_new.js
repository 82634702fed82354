/* The form of a queue shows the criteria of the chosen rubric alone. */

export function mount(form) {
  const rubric = form.querySelector("[data-rubric]");
  const show = () => {
    for (const box of form.querySelectorAll("[data-criteria]")) {
      box.hidden = box.dataset.criteria !== rubric.value;
    }
  };
  rubric.addEventListener("change", show);
  show();
}
