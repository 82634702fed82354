/* A play by hand. Commands are sent without leaving the page; what came of them is told by the stream, and the page
   is fetched again and swapped in by its parts: each has a key, and one whose key is the same is left alone, so that
   what is typed, the focus and open folds stay. */
import { follow } from "./feed.js";

const WATCH_MS = 3000;

export function mount(element) {
  const panel = new Panel(element);
  if (element.querySelector("[data-csrf]")) follow(element, () => panel.soon());
}

class Panel {
  constructor(element) {
    this.element = element;
    this.timer = 0;
    this.running = false;
    this.again = false;
    element.addEventListener("submit", (event) => event.target.matches("[data-ask]") && this.submit(event));
    element.addEventListener("change", (event) => event.target.matches("[data-variants]") && this.variants(true));
    document.addEventListener("keydown", (event) => this.key(event));
    this.variants(false);
    this.watch();
    this.focus();
  }

  /* --- keys ------------------------------------------------------------------------------------------------- */

  key(event) {
    if (document.querySelector("dialog[open]") || event.isComposing) return;
    const field = event.target.closest?.("input, textarea, select");
    const form = field?.closest("[data-ask]");
    if (event.key === "Enter" && form && field.matches("textarea")) {
      /* JSON has lines; other texts are sent by Enter as in a chat. */
      const sends = event.ctrlKey || event.metaKey || (!field.matches("[data-json], #extra") && !event.shiftKey);
      if (!sends) return;
      event.preventDefault();
      form.requestSubmit();
    } else if (event.key === "Escape" && field) {
      field.blur();
    } else if (event.key === "u" && !field && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      this.element.querySelector("[data-undo]")?.requestSubmit();
    } else if (event.key === "i" && !field && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      this.focus();
    }
  }

  focus() {
    const form = this.element.querySelector("[data-act]");
    [...(form?.querySelectorAll("[data-first]") ?? [])].find((field) => field.offsetParent !== null)?.focus();
  }

  variants(takesFocus) {
    const form = this.element.querySelector("[data-act]");
    if (!form) return;
    const chosen = form.querySelector("select[data-variants]") ?? form.querySelector("input[data-variants]:checked");
    if (!chosen) return;
    for (const part of form.querySelectorAll("[data-variant]")) part.hidden = part.dataset.variant !== chosen.value;
    if (takesFocus) this.focus();
  }

  /* --- asking ----------------------------------------------------------------------------------------------- */

  async submit(event) {
    event.preventDefault();
    const form = event.target;
    if (form.dataset.busy !== undefined) return;
    form.dataset.busy = "";
    const body = new FormData(form);
    const token = this.element.querySelector("[data-csrf] input").value;
    if (!body.has("csrfmiddlewaretoken")) body.append("csrfmiddlewaretoken", token);
    try {
      const answer = await fetch(form.action, {
        method: "POST",
        body: new URLSearchParams(body),
        headers: { Accept: "application/json" },
        credentials: "same-origin",
      });
      const known = answer.ok || answer.status === 422;
      this.show(form, known ? (await answer.json()).errors : { all: `The server refused this (${answer.status}).` });
      if (answer.ok && form.matches("[data-act]")) this.clear(form);
    } catch {
      this.show(form, { all: "The server does not answer. Nothing was sent; try again." });
    } finally {
      delete form.dataset.busy;
    }
    this.soon();
  }

  show(form, errors) {
    for (const line of form.querySelectorAll("[data-error]")) {
      const text = errors[line.dataset.error] ?? "";
      line.hidden = !text;
      line.textContent = text;
      const field = form.elements.namedItem(line.dataset.error);
      if (field instanceof Element) field.toggleAttribute("aria-invalid", Boolean(text));
      if (field instanceof Element && text) field.setAttribute("aria-invalid", "true");
    }
    const first = Object.keys(errors)[0];
    if (!first) return;
    if (!form.querySelector(`[data-error="${CSS.escape(first)}"]`)) alertIn(this.element, errors[first]);
    const field = form.elements.namedItem(first);
    if (field instanceof HTMLElement) field.focus();
  }

  clear(form) {
    const part = [...form.querySelectorAll("[data-variant]")].find((item) => !item.hidden) ?? form;
    for (const field of part.querySelectorAll("textarea, input[type='text']")) field.value = field.defaultValue;
    this.focus();
  }

  /* --- following -------------------------------------------------------------------------------------------- */

  soon() {
    this.timer ||= setTimeout(() => {
      this.timer = 0;
      this.refresh();
    }, 40);
  }

  async refresh() {
    if (this.running) {
      this.again = true;
      return;
    }
    this.running = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (answer.ok) this.swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      /* The feed says that the server is gone; the next event refreshes again. */
    } finally {
      this.running = false;
      if (this.again) {
        this.again = false;
        this.soon();
      }
    }
  }

  /* While something is waited for, the page is looked at without an event too: a silent worker sends none. */
  watch() {
    clearTimeout(this.watching);
    if (this.element.querySelector("[data-waiting]")) this.watching = setTimeout(() => this.soon(), WATCH_MS);
  }

  swap(page) {
    const form = this.element.querySelector("[data-act]");
    const wasActing = !form || form.contains(document.activeElement) || document.activeElement === document.body;
    let moved = false;
    for (const part of this.element.querySelectorAll("[data-swap]")) {
      const next = page.querySelector(`[data-swap="${part.dataset.swap}"]`);
      if (!next || next.dataset.key === part.dataset.key) continue;
      const open = [...part.querySelectorAll("details[id][open]")].map((fold) => fold.id);
      const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
      part.replaceChildren(...next.childNodes);
      part.dataset.key = next.dataset.key;
      for (const id of open) document.getElementById(id)?.setAttribute("open", "");
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
      moved ||= part.dataset.swap === "flow";
    }
    this.variants(false);
    this.watch();
    if (moved && wasActing) {
      if (!this.element.querySelector("[data-act]")?.contains(document.activeElement)) this.focus();
      this.element.querySelector('[data-swap="act"]')?.scrollIntoView({ block: "nearest" });
    }
    const title = page.querySelector("title")?.textContent;
    if (title) document.title = title;
  }
}

function alertIn(element, text) {
  const line = element.querySelector('[data-error="all"]');
  if (!line) return;
  line.hidden = false;
  line.textContent = text;
}
