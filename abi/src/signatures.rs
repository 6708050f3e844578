//! The arguments of system calls, as a trace shows them.

/// Returns whether a call may not return to its caller, so that a trace reports it before it is made:
/// rt_sigreturn, execve, exit, exit_group, execveat.
pub const fn may_not_return(number: u64) -> bool {
    matches!(number, 15 | 59 | 60 | 231 | 322)
}

/// Returns a letter for each argument of a call. A call that is not known has six arguments of kind `x`.
///
/// | letter | argument |
/// |---|---|
/// | `d` | an `int`, or an offset |
/// | `u` | a number of bytes, or another one without a sign |
/// | `x` | an address, or flags |
/// | `o` | permissions |
/// | `s` | a string, such as a path |
pub const fn signature(number: u64) -> &'static str {
    match number {
        0 | 1 | 78 | 217 => "dxu",
        2 => "sxo",
        145..=147 => "d",
        3 | 32 | 74 | 75 | 81 | 105 | 106 | 121..=124 | 213 | 225 | 226 | 306 => "d",
        4 | 6 | 21 | 137 | 319 => "sx",
        5 | 36 | 73 | 142 | 143 | 97 | 98 | 115 | 116 | 138 | 160 | 224 | 228 | 229 | 283 | 244 | 287
        | 434 => "dx",
        7 => "xud",
        8 | 41 | 93 | 117 | 119 | 141 | 234 => "ddd",
        9 => "xuxxdx",
        10 | 26 | 27 | 318 | 325 => "xux",
        11 | 79 | 127 | 130 | 149 | 150 | 273 | 435 => "xu",
        29 => "dux",
        12 | 22 | 67 | 135 | 151 | 63 | 99 | 100 | 201 | 218 | 291 | 294 => "x",
        13 | 14 => "dxxu",
        15 | 24 | 152 | 34 | 39 | 57 | 58 | 102 | 104 | 107 | 108 | 110 | 111 | 112 | 162 | 186 | 219
        | 253 => "",
        144 | 245 | 274 => "dxx",
        16 | 30 | 31 | 38 | 43 | 46 | 47 | 51 | 52 | 72 | 222 => "dxx",
        17 | 18 => "dxud",
        19 | 20 | 42 | 49 => "dxd",
        23 | 157 => "dxxxx",
        25 => "xuuxx",
        28 => "xud",
        64 | 129 => "ddx",
        65 => "dxu",
        66 | 277 | 297 => "dddx",
        68 => "dx",
        69 | 307 => "dxux",
        70 => "dxudx",
        71 => "ddx",
        220 => "dxux",
        240 => "sxox",
        242 => "dxuux",
        243 => "dxuxx",
        33 | 48 | 50 | 62 | 77 | 109 | 113 | 114 | 140 | 200 | 255 => "dd",
        35 | 96 | 125 | 126 | 131 | 158 | 293 => "xx",
        37 | 284 => "u",
        40 => "ddxu",
        44 => "dxuxxd",
        45 => "dxuxxx",
        299 => "dxuxx",
        53 | 233 => "dddx",
        54 => "dddxd",
        55 => "dddxx",
        56 => "xxxxx",
        59 => "sxx",
        60 | 231 => "d",
        61 | 286 | 288 => "dxxx",
        76 => "sd",
        80 | 84 | 87 | 241 => "s",
        82 | 86 | 88 => "ss",
        83 | 85 | 90 => "so",
        89 => "sxu",
        91 => "do",
        92 | 94 => "sdd",
        95 => "o",
        118 | 120 | 309 => "xxx",
        128 => "xxxu",
        133 => "sox",
        202 => "xduxxu",
        203 | 204 => "dux",
        221 => "dddd",
        101 | 223 | 230 | 302 => "ddxx",
        232 => "dxdd",
        247 => "ddxxx",
        257 => "dsxo",
        258 | 268 => "dso",
        260 => "dsddx",
        262 | 280 | 439 => "dsxx",
        254 | 263 | 269 => "dsx",
        264 => "dsds",
        265 | 316 => "dsdsx",
        266 => "sds",
        267 | 437 => "dsxu",
        270 => "dxxxxx",
        271 => "xuxxu",
        281 => "dxddxu",
        282 => "dxu",
        289 => "dxux",
        285 => "dxdd",
        290 => "ux",
        188 | 189 => "ssxud",
        190 => "dsxud",
        191 | 192 => "ssxu",
        193 => "dsxu",
        194 | 195 => "sxu",
        196 => "dxu",
        197 | 198 => "ss",
        199 => "ds",
        292 | 438 => "ddx",
        312 => "ddddd",
        295 | 296 => "dxdd",
        310 | 311 => "dxuxux",
        322 | 332 => "dsxxx",
        326 => "dxdxux",
        327 | 328 => "dxddx",
        324 => "dxd",
        334 => "xuxx",
        440 => "dxudx",
        424 => "ddxx",
        436 => "uux",
        441 => "dxdxxu",
        _ => "xxxxxx",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscalls::{Support, TABLE};

    #[test]
    fn every_call_that_the_kernel_does_has_a_signature() {
        let done = TABLE.iter().filter(|entry| !matches!(entry.support, Support::None));
        for entry in done {
            let signature = signature(entry.number.into());
            assert!(signature.len() <= 6 && signature.bytes().all(|letter| b"duxos".contains(&letter)));
            assert_ne!(signature, "xxxxxx", "{}", entry.name);
        }
    }
}
