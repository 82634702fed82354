/* A button that prints the page. */

export function mount(button) {
  button.addEventListener("click", () => window.print());
}
