/* A filter form that needs no press: it is sent when a choice changes. */

export function mount(form) {
  form.querySelector("button")?.classList.add("visually-hidden");
  for (const choice of form.querySelectorAll("select, input[type=checkbox]")) choice.addEventListener("change", () => form.requestSubmit());
}
