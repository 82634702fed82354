/* A trace: the windowed one of a rollout's page, or one that stands on its page as a whole (review, calibration). */

export async function mount(element) {
  const index = element.querySelector("#trace-index");
  if (index) {
    const { TraceView } = await import("./trace_view.js");
    new TraceView(element, JSON.parse(index.textContent));
  } else {
    const { StaticTrace } = await import("./trace_static.js");
    new StaticTrace(element);
  }
}
