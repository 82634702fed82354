/* The preview in the editor's right column: fetched again whenever the draft is stored or another rollout is chosen.
   Only the answer to the newest question is shown. */

const TYPING_MS = 350;

export function mount(card) {
  new Preview(card);
}

class Preview {
  constructor(card) {
    this.card = card;
    this.form = card.querySelector("[data-preview-form]");
    this.body = card.querySelector("[data-preview]");
    this.note = card.querySelector("[data-preview-note]");
    this.asked = null;
    this.timer = 0;
    this.chosen = location.hash.slice(1);
    this.spec = null;
    document.addEventListener("rubric:stored", (event) => this.stored(event.detail.spec));
    document.addEventListener("rubric:chosen", (event) => this.mark(event.detail.criterion));
    this.form.addEventListener("change", () => this.soon(0));
    this.form.addEventListener("input", (event) => event.target.type === "search" && this.soon(TYPING_MS));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.soon(0);
    });
    this.body.addEventListener("submit", (event) => {
      event.preventDefault();
      this.load(new FormData(event.target));
    });
    this.load();
  }

  stored(spec) {
    const text = JSON.stringify(spec);
    if (text === this.spec) return;
    this.spec = text;
    this.soon(TYPING_MS);
  }

  soon(delayMs) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), delayMs);
  }

  /* `asked`: a form that asks a model, which takes a POST. */
  async load(asked = null) {
    this.asked?.abort();
    const mine = (this.asked = new AbortController());
    const query = new URLSearchParams(new FormData(this.form));
    query.set("part", "1");
    asked?.set("part", "1");
    this.note.textContent = asked ? "asks the model …" : "grades …";
    this.card.setAttribute("aria-busy", "true");
    try {
      const address = asked ? this.card.dataset.url : `${this.card.dataset.url}?${query}`;
      const answer = await fetch(address, {
        method: asked ? "POST" : "GET",
        body: asked ?? undefined,
        headers: { Accept: "text/html" },
        credentials: "same-origin",
        signal: mine.signal,
      });
      if (!answer.ok) throw new Error(`the server refused this (${answer.status})`);
      this.show(new DOMParser().parseFromString(await answer.text(), "text/html"));
      this.note.textContent = "";
    } catch (error) {
      if (error.name === "AbortError") return;
      this.note.textContent = `No preview: ${error.message}.`;
    }
    this.card.removeAttribute("aria-busy");
  }

  show(page) {
    const choice = page.querySelector("[data-choice]");
    if (choice) this.choice(choice);
    choice?.remove();
    const isOpen = this.body.querySelector("#preview-trace")?.open;
    this.body.replaceChildren(...page.body.childNodes);
    if (isOpen) this.body.querySelector("#preview-trace").open = true;
    for (const link of this.body.querySelectorAll('a[href^="#e"]')) {
      link.addEventListener("click", (event) => this.open(event, link.hash));
    }
    this.mark(this.chosen);
  }

  /* The list of rollouts may have changed; what is being typed stays as it is. */
  choice(next) {
    const active = document.activeElement;
    if (this.form.contains(active) && active.type === "search") {
      const list = this.form.querySelector("#preview-on");
      const fresh = next.querySelector("#preview-on");
      if (list && fresh) list.replaceChildren(...fresh.childNodes);
      return;
    }
    const id = this.form.contains(active) ? active.id : "";
    this.form.replaceChildren(...next.childNodes);
    if (id) document.getElementById(id)?.focus({ preventScroll: true });
  }

  open(event, hash) {
    event.preventDefault();
    const trace = this.body.querySelector("#preview-trace");
    trace.open = true;
    const card = trace.querySelector(hash);
    card?.scrollIntoView({ block: "center" });
    card?.focus({ preventScroll: true });
  }

  mark(criterion) {
    this.chosen = criterion ?? "";
    for (const line of this.body.querySelectorAll(".preview-line")) {
      line.classList.toggle("on", line.dataset.criterion === this.chosen);
    }
  }
}
