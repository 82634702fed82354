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
  constructor(canvas, index, go) {
    this.canvas = canvas;
    this.index = index;
    this.position = null;
    this.isPlanned = false;
    canvas.addEventListener("pointerdown", (event) => {
      const share = event.offsetX / canvas.clientWidth;
      const row = Math.floor(share * index.shown.length);
      if (index.shown.length) go(index.shown[Math.max(0, Math.min(index.shown.length - 1, row))]);
    });
    new ResizeObserver(() => this.reset()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.reset());
  }

  follow(position) {
    if (position === this.position) return;
    this.position = position;
    this.plan();
  }

  reset() {
    this.picture = null;
    this.plan();
  }

  plan() {
    if (this.isPlanned) return;
    this.isPlanned = true;
    requestAnimationFrame(() => {
      this.isPlanned = false;
      this.draw();
    });
  }

  draw() {
    const { canvas, index } = this;
    const width = Math.round(canvas.clientWidth * devicePixelRatio);
    const height = Math.round(14 * devicePixelRatio);
    if (!width) return;
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
      this.picture = null;
    }
    const context = canvas.getContext("2d");
    if (!this.picture) {
      this.stripes(context, width, height);
      this.picture = context.getImageData(0, 0, width, height);
    } else {
      context.putImageData(this.picture, 0, 0);
    }
    const row = index.rows.get(this.position);
    if (row === undefined) return;
    const x = (row / Math.max(1, index.shown.length)) * width;
    context.fillStyle = colour(canvas, "--trail");
    context.fillRect(Math.min(width - 3, x), 0, Math.max(2, 2 * devicePixelRatio), height);
  }

  stripes(context, width, height) {
    const { shown } = this.index;
    context.clearRect(0, 0, width, height);
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
      context.fillRect(x, top, Math.max(1, Math.min(step - (step > 3 ? 1 : 0), 40)), height - 2 * top);
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
