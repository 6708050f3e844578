//! The style of the page, light and dark. `palette` says which colour belongs to which system.

/// The page's style sheet.
pub const CSS: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --panel: #f6f8fa; --rule: #d0d7de;
  --c0: #009e73; --c1: #0060b0; --c2: #d98200; --c3: #b42318; --c4: #8a5a00; --c5: #bf3989; --c6: #8250df; --c7: #5a7d00;
  --c8: #6e7781; --c9: #00838f; --c10: #e8590c; --c11: #2a9d8f; --c12: #e9a100; --c13: #e76f51; --c14: #b5179e; --c15: #5a189a;
  --hot: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4ae; --paper: #0d1117; --panel: #161b22; --rule: #30363d;
  --c0: #2ecc9a; --c1: #58a6ff; --c2: #f0b03f; --c3: #ff8a80; --c4: #d9a441; --c5: #f778ba; --c6: #bc8cff; --c7: #a5cc4d;
  --c8: #a5b0ba; --c9: #4dd0e1; --c10: #ff9e5e; --c11: #5fd6c7; --c12: #ffd166; --c13: #f4a48f; --c14: #f06ad8; --c15: #c29bff;
  --hot: #ff8a80; } }
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
svg .curve { fill: none; stroke-width: 2.2; } svg .thin { stroke-width: 1.3; } svg .hollow { fill: var(--panel); stroke-width: 1.6; } svg .said { fill: var(--panel); stroke-width: 2; }
svg .key { stroke: var(--soft); stroke-width: 2; fill: none; } svg circle.key { fill: var(--soft); } svg .key.band { fill: var(--soft); } svg text.heading { font-size: 14px; font-weight: 600; }
svg .beyond { stroke-dasharray: 6 4; } svg .band { opacity: .15; stroke: none; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); } .s3 { stroke: var(--c3); } .s4 { stroke: var(--c4); } .s5 { stroke: var(--c5); } .s6 { stroke: var(--c6); } .s7 { stroke: var(--c7); } .s8 { stroke: var(--c8); } .s9 { stroke: var(--c9); } .s10 { stroke: var(--c10); } .s11 { stroke: var(--c11); } .s12 { stroke: var(--c12); } .s13 { stroke: var(--c13); } .s14 { stroke: var(--c14); } .s15 { stroke: var(--c15); }
.f0 { fill: var(--c0); } .f1 { fill: var(--c1); } .f2 { fill: var(--c2); } .f3 { fill: var(--c3); } .f4 { fill: var(--c4); } .f5 { fill: var(--c5); } .f6 { fill: var(--c6); } .f7 { fill: var(--c7); } .f8 { fill: var(--c8); } .f9 { fill: var(--c9); } .f10 { fill: var(--c10); } .f11 { fill: var(--c11); } .f12 { fill: var(--c12); } .f13 { fill: var(--c13); } .f14 { fill: var(--c14); } .f15 { fill: var(--c15); }
.line { background: var(--panel); border-radius: 6px; padding: .5rem .9rem; margin: .6rem 0; } .line table { width: 100%; }
.tag { color: var(--hot); font-weight: 600; } details > summary { cursor: pointer; font-weight: 600; margin: .8rem 0 .3rem; }
";
