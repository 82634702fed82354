/* A filter form that needs no press: it is sent when a choice changes. */

export function mount(form) {
  form.querySelector("button")?.classList.add("visually-hidden");
  for (const select of form.querySelectorAll("select")) select.addEventListener("change", () => form.requestSubmit());
}
