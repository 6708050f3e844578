//! The style of the page, light and dark. Colours of curves differ in lightness as well as in hue.

/// The page's style sheet.
pub const CSS: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --panel: #f6f8fa; --rule: #d0d7de;
  --c0: #0060b0; --c1: #d98200; --c2: #6e7781; --c3: #1a7f37; --c4: #8250df; --c5: #bf3989; --hot: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4ae; --paper: #0d1117; --panel: #161b22; --rule: #30363d;
  --c0: #58a6ff; --c1: #f0b03f; --c2: #a5b0ba; --c3: #56d364; --c4: #bc8cff; --c5: #f778ba; --hot: #ff8a80; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 78rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid var(--rule); }
h3 { font-size: 1rem; margin-bottom: .3rem; }
p, li { max-width: 48rem; } .soft, figcaption { color: var(--soft); font-size: .9rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; } .wide { overflow-x: auto; }
th, td { padding: .2rem .7rem .2rem 0; text-align: left; vertical-align: top; } tbody tr { border-top: 1px solid var(--rule); }
td, thead th { white-space: nowrap; } td:has(code) { white-space: normal; } thead th { color: var(--soft); font-weight: 600; } tbody th { font-weight: 600; white-space: nowrap; } .number { text-align: right; }
code { font: .85rem/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1.2rem; } figure { margin: 0; } .plots figure:not(:only-child), .plots svg { max-width: 38rem; }
figure.first { grid-column: 1 / -1; } figure.first svg { max-width: 56rem; display: block; } svg { width: 100%; height: auto; background: var(--panel); border-radius: 6px; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg .soft { fill: var(--soft); }
svg .paper { fill: var(--panel); } svg .grid { stroke: var(--rule); stroke-width: 1; } svg .axis { stroke: var(--soft); } svg .ideal { stroke: var(--soft); stroke-dasharray: 1 4; fill: none; }
svg .curve { fill: none; stroke-width: 2.2; } svg .beyond { stroke-dasharray: 6 4; } svg .band { opacity: .15; stroke: none; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); } .s3 { stroke: var(--c3); } .s4 { stroke: var(--c4); } .s5 { stroke: var(--c5); }
.f0 { fill: var(--c0); } .f1 { fill: var(--c1); } .f2 { fill: var(--c2); } .f3 { fill: var(--c3); } .f4 { fill: var(--c4); } .f5 { fill: var(--c5); }
.line { background: var(--panel); border-radius: 6px; padding: .5rem .9rem; margin: .6rem 0; } .line table { width: 100%; }
.tag { color: var(--hot); font-weight: 600; } details > summary { cursor: pointer; font-weight: 600; margin: .8rem 0 .3rem; }
";
