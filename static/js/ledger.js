/* Looks again while a checkpoint's look is queued or running, and shows the page once it has ended. */

const EVERY_MS = 1500;

export function mount(element) {
  const look = async () => {
    const answer = document.hidden ? null : await fetch(location.href, { credentials: "same-origin" }).catch(() => null);
    if (answer?.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("[data-looks]");
      if (!fresh || fresh.dataset.module === undefined) {
        location.reload();
        return;
      }
      if (fresh.textContent !== element.textContent && !element.contains(document.activeElement)) {
        element.replaceChildren(...fresh.childNodes);
        const told = document.querySelector("[data-told]");
        if (told) told.textContent = element.querySelector(".pill")?.textContent ?? "";
      }
    }
    setTimeout(look, EVERY_MS);
  };
  setTimeout(look, EVERY_MS);
}
