/* Reads the page again while work on it is under way, and puts the new form of this element in place.
   What somebody types elsewhere on the page stays. */

const EVERY_MS = 2000;

export function mount(element) {
  let stopped = false;
  async function look() {
    if (stopped || !element.isConnected) return;
    if (!document.hidden) {
      try {
        const answer = await fetch(location.href, { headers: { accept: "text/html" } });
        if (answer.ok) {
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          const fresh = page.getElementById(element.id);
          if (fresh && fresh.innerHTML !== element.innerHTML && !element.contains(document.activeElement)) {
            element.innerHTML = fresh.innerHTML;
          }
          stopped = !fresh || fresh.dataset.again === undefined;
        }
      } catch {
        /* The server is away for a moment: the next look tries again. */
      }
    }
    if (!stopped) setTimeout(look, EVERY_MS);
  }
  if (element.dataset.again !== undefined) setTimeout(look, EVERY_MS);
}
