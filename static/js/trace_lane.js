/* A thin bar over the whole trace: a stripe per event in the colour of its role, verdicts and ends taller, and a
   caret where one is reading. A press goes there; keys and the outline do the same. */

const ROLES = {
  action: "--role-agent",
  "skill.loaded": "--role-agent",
  observation: "--role-env",
  verdict: "--role-judge",
  "rollout.started": "--role-user",
  "rollout.ended": "--good",
  "rollout.restarted": "--err",
};

export class TraceLane {
  constructor(lane, index, go) {
    this.lane = lane;
    this.canvas = lane.querySelector("canvas");
    this.caret = lane.querySelector("span");
    this.index = index;
    this.position = null;
    this.isPlanned = false;
    lane.addEventListener("pointerdown", (event) => {
      const box = lane.getBoundingClientRect();
      const row = Math.floor(((event.clientX - box.left) / box.width) * index.shown.length);
      if (index.shown.length) go(index.shown[Math.max(0, Math.min(index.shown.length - 1, row))]);
    });
    new ResizeObserver(([entry]) => {
      this.width = entry.contentRect.width;
      this.reset();
    }).observe(lane);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.reset());
    new MutationObserver(() => this.reset()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  follow(position) {
    if (position === this.position) return;
    this.position = position;
    const row = this.index.rows.get(position) ?? 0;
    this.caret.style.transform = `translateX(${(row / Math.max(1, this.index.shown.length)) * (this.width ?? 0)}px)`;
  }

  reset() {
    if (this.isPlanned) return;
    this.isPlanned = true;
    requestAnimationFrame(() => {
      this.isPlanned = false;
      const { position } = this;
      this.position = null;
      this.follow(position);
      this.draw();
    });
  }

  draw() {
    const width = Math.round((this.width ?? 0) * devicePixelRatio);
    if (!width) return;
    this.canvas.width = width;
    this.canvas.height = Math.round(14 * devicePixelRatio);
    this.stripes(this.canvas.getContext("2d"), width, this.canvas.height);
  }

  stripes(context, width, height) {
    const { shown } = this.index;
    const colours = new Map();
    const step = Math.max(1, width / Math.max(1, shown.length));
    let drawn = -1;
    for (let row = 0; row < shown.length; row += 1) {
      const kind = this.index.kind(shown[row]);
      const x = Math.floor((row / shown.length) * width);
      const isTall = kind === "verdict" || kind.startsWith("rollout.");
      if (x === drawn && !isTall) continue;
      drawn = x;
      const role = ROLES[kind] ?? "--role-system";
      if (!colours.has(role)) colours.set(role, colour(this.canvas, role));
      context.fillStyle = colours.get(role);
      const top = isTall ? 1 : Math.round(height * 0.3);
      context.fillRect(x, top, Math.max(1, step - (step > 3 ? 1 : 0)), height - 2 * top);
    }
  }
}

/* `light-dark()` of a custom property is resolved where it is used as a colour. */
function colour(canvas, name) {
  canvas.style.color = `var(${name})`;
  const found = getComputedStyle(canvas).color;
  canvas.style.color = "";
  return found;
}
