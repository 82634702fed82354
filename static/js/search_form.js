/* The forecast beside the form of a search: asked for again whenever the form changes. Only the answer to the newest
   question is shown. */

const TYPING_MS = 400;

export function mount(form) {
  const slot = form.querySelector("[data-forecast]");
  if (!slot) return;
  form.querySelector("[data-forecast-button]")?.setAttribute("hidden", "");
  let asked = null;
  let timer = 0;

  async function load() {
    asked?.abort();
    const mine = (asked = new AbortController());
    const query = new URLSearchParams(new FormData(form));
    query.delete("csrfmiddlewaretoken");
    const card = slot.querySelector(".forecast");
    card?.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(`${form.dataset.url}?${query}`, {
        headers: { Accept: "text/html" },
        credentials: "same-origin",
        signal: mine.signal,
      });
      if (!answer.ok) throw new Error(`the server refused this (${answer.status})`);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      slot.replaceChildren(...page.body.childNodes);
    } catch (error) {
      if (error.name === "AbortError") return;
      card?.removeAttribute("aria-busy");
      const note = document.createElement("p");
      note.className = "error small";
      note.textContent = `No forecast: ${error.message}.`;
      slot.replaceChildren(note);
    }
  }

  function soon(delayMs) {
    clearTimeout(timer);
    timer = setTimeout(load, delayMs);
  }

  form.addEventListener("input", (event) => soon(event.target.matches("select, [type=radio], [type=checkbox]") ? 0 : TYPING_MS));
}
