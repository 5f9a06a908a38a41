(function () {
  "use strict";
  var specs = JSON.parse(document.getElementById("specs").textContent);
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function config(isDark) {
    var ink = isDark ? "#e8eaee" : "#1c2330", soft = isDark ? "#a4adba" : "#566072", line = isDark ? "#333b47" : "#dfe3e9";
    var colours = isDark
      ? ["#7fb2ff", "#ffb057", "#5fd3aa", "#f28cc6", "#b8a2ff", "#9aa7b8", "#ffe083", "#ff8f80"]
      : ["#1f66d1", "#d06a00", "#12805f", "#b32b7e", "#6a4bc0", "#5b6675", "#9a7400", "#c23b2c"];
    var ramp = isDark ? ["#1b222c", "#24507f", "#4a93e6", "#bfe0ff"] : ["#f1f4f8", "#a9c9f2", "#3b7fd6", "#0d3a7c"];
    var font = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
    return {
      background: "transparent", font: font, view: { stroke: null },
      axis: { labelColor: soft, titleColor: soft, gridColor: line, domainColor: line, tickColor: line,
              labelFontSize: 11, titleFontSize: 11, titleFontWeight: "normal", labelOverlap: true },
      legend: { labelColor: ink, titleColor: soft, labelFontSize: 11, titleFontSize: 11, titleFontWeight: "normal", labelLimit: 170 },
      range: { category: colours, heatmap: ramp, ramp: ramp },
      tick: { color: ink }
    };
  }
  function draw(isDark) {
    Object.keys(specs).forEach(function (key) {
      var box = document.getElementById(key);
      vegaEmbed(box, specs[key], {
        actions: false, ast: true, config: config(isDark), theme: undefined,
        renderer: key.indexOf("chart-heat") === 0 ? "canvas" : "svg",
        tooltip: { theme: isDark ? "dark" : "light" }
      }).catch(function (error) { box.textContent = "This chart could not be drawn: " + error.message; });
    });
  }
  draw(dark.matches);
  dark.addEventListener("change", function () { draw(dark.matches); });
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (box) { box.open = true; });
    if (dark.matches) { draw(false); }
  });
  window.addEventListener("afterprint", function () { if (dark.matches) { draw(true); } });
})();
