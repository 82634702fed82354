/* An item under review, by keyboard: digits (of a pair A, E, B) choose a value of the marked criterion and go on to
   the next, Enter is done and next. The reservation is taken when the page opens and renewed while somebody works.
   What is not saved yet is kept in this browser until it is. */

const RENEW_MS = 60000;

export function mount(element) {
  const form = element.querySelector("[data-marks]");
  forget(element.dataset.after);
  if (element.dataset.isDone !== undefined) forget(element.dataset.item);
  if (!form) return;
  const marks = new Marks(element, form);
  new Reservation(element, form);
  document.addEventListener("keydown", (event) => marks.key(event));
}

const place = (item) => `switchback.review.${item}`;

function forget(item) {
  if (item) localStorage.removeItem(place(item));
}

class Marks {
  constructor(element, form) {
    this.element = element;
    this.form = form;
    this.criteria = [...form.querySelectorAll(".mark")];
    this.isPair = element.dataset.pair !== undefined;
    this.missing = form.querySelector("[data-missing]");
    this.restore();
    form.addEventListener("input", () => this.keep());
    form.addEventListener("focusin", (event) => {
      const mark = event.target.closest(".mark");
      if (mark) this.choose(this.criteria.indexOf(mark), false);
    });
    form.addEventListener("submit", (event) => {
      if (event.submitter?.matches("[data-press]") || event.submitter?.hasAttribute("formaction")) return;
      if (!this.check()) event.preventDefault();
    });
    const first = this.criteria.findIndex((mark) => !this.isMarked(mark));
    this.choose(Math.max(0, first), false);
  }

  isMarked(mark) {
    const typed = mark.querySelector("input[type='text']");
    return typed ? typed.value.trim() !== "" : Boolean(mark.querySelector("input:checked"));
  }

  choose(at, focus = true) {
    if (at < 0 || at >= this.criteria.length) return;
    this.at = at;
    this.criteria.forEach((mark, i) => mark.classList.toggle("on", i === at));
    if (!focus) return;
    const typed = this.criteria[at].querySelector("input[type='text']");
    (typed ?? this.criteria[at]).focus({ preventScroll: true });
    this.criteria[at].scrollIntoView({ block: "nearest" });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      if (event.key === "Enter" && event.target.closest("textarea")) this.done();
      return;
    }
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    const field = event.target.closest("input:not([type=radio]), select, textarea");
    if (field) {
      if (event.key === "Escape" && this.form.contains(field)) this.choose(this.at);
      return;
    }
    if (this.press(event)) event.preventDefault();
  }

  press(event) {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const inMarks = this.form.contains(event.target) || event.target === document.body || event.target.id === "content";
    switch (key) {
      case "ArrowDown":
      case "ArrowUp":
        if (!inMarks) return false;
        this.choose(this.at + (key === "ArrowDown" ? 1 : -1));
        return true;
      case "Enter":
        if (event.target.closest("a, button, summary")) return false;
        this.done();
        return true;
      case "m":
        this.criteria[this.at]?.querySelector("textarea")?.focus();
        return true;
      case "s":
      case "q": {
        const button = this.form.querySelector(`[data-press="${key}"]`);
        button?.click();
        return Boolean(button);
      }
      default:
        return this.value(key);
    }
  }

  value(key) {
    const radio = this.criteria[this.at]?.querySelector(`input[data-key="${key}"]`);
    if (!radio) return false;
    radio.checked = true;
    radio.dispatchEvent(new Event("input", { bubbles: true }));
    this.criteria[this.at].classList.remove("missing");
    const next = this.criteria.findIndex((mark, i) => i > this.at && !this.isMarked(mark));
    this.choose(next < 0 ? this.at : next);
    this.say();
    return true;
  }

  /* Marked and saved already: Enter goes on to the next item. */
  done() {
    const next = this.element.querySelector("[data-next]");
    if (next && !this.isChanged) next.click();
    else this.form.querySelector("[data-done]").click();
  }

  say() {
    const open = this.criteria.filter((mark) => !this.isMarked(mark)).length;
    this.missing.textContent = open ? `${open} of ${this.criteria.length} not marked yet` : "all marked";
  }

  check() {
    const open = this.criteria.findIndex((mark) => !this.isMarked(mark));
    if (open < 0) return true;
    for (const mark of this.criteria) mark.classList.toggle("missing", !this.isMarked(mark));
    this.choose(open);
    this.say();
    return false;
  }

  keep() {
    this.isChanged = true;
    const data = Object.fromEntries(new FormData(this.form));
    delete data.csrfmiddlewaretoken;
    delete data.comment;
    localStorage.setItem(place(this.element.dataset.item), JSON.stringify(data));
  }

  /* What was marked here and not saved: after a closed tab, a lost line, another form of the page. */
  restore() {
    const text = localStorage.getItem(place(this.element.dataset.item));
    if (!text || this.element.dataset.isDone !== undefined) return;
    for (const [name, value] of Object.entries(JSON.parse(text))) {
      if (!/^(mark|note)-/.test(name)) continue;
      for (const input of this.form.elements) {
        if (input.name !== name) continue;
        if (input.type === "radio") input.checked = input.checked || input.value === value;
        else if (!input.value) input.value = value;
      }
    }
    this.isChanged = true;
  }
}

class Reservation {
  constructor(element, form) {
    this.element = element;
    this.form = form;
    this.shown = document.querySelector("[data-countdown]");
    this.url = element.dataset.reserveUrl;
    if (!this.url) return;
    this.expires = Date.parse(this.shown?.dataset.expires ?? "") || 0;
    this.asked = 0;
    this.ask();
    for (const kind of ["keydown", "pointerdown", "input"]) addEventListener(kind, () => this.soon());
    setInterval(() => this.draw(), 1000);
  }

  soon() {
    if (!this.isOver && Date.now() - this.asked > RENEW_MS) this.ask();
  }

  async ask() {
    this.asked = Date.now();
    const token = this.form.querySelector("[name=csrfmiddlewaretoken]").value;
    try {
      const answer = await fetch(this.url, { method: "POST", headers: { "X-CSRFToken": token }, credentials: "same-origin" });
      if (answer.ok) {
        this.expires = Date.parse((await answer.json()).expires_at);
        this.trouble("");
      } else if (answer.status === 409 || answer.status === 410) {
        const { state, message } = await answer.json();
        this.isOver = state === "gone";
        this.expires = 0;
        this.trouble(`${message} What you have marked stays on this page.`);
      }
    } catch {
      /* The server is away; the countdown goes on, and the next key asks again. */
    }
    this.draw();
    this.element.dataset.reserved = "";
  }

  trouble(text) {
    const box = this.element.querySelector("[data-trouble]");
    box.hidden = !text;
    box.querySelector("[data-trouble-text]").textContent = text;
  }

  draw() {
    if (!this.shown) return;
    const left = Math.ceil((this.expires - Date.now()) / 1000);
    const clock = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
    const text = this.expires === 0 ? "not reserved" : left > 0 ? `yours for ${clock}` : "reservation ran out";
    if (this.shown.textContent !== text) this.shown.textContent = text;
    this.shown.classList.toggle("short", left <= 60);
  }
}
