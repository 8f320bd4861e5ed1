//! The classes and functions that a pickle names, found by reading its opcodes; nothing of it is run.
//!
//! The opcodes are those of `pickletools` in Python's standard library, protocols 0 to 5.

use std::collections::{HashMap, HashSet};

/// The names in a pickle: `module name`, once each, in the order of the first mention; [`UNKNOWN`] for a name that is
/// computed.
pub type Names = Vec<String>;

/// A name that the opcodes alone do not show.
pub const UNKNOWN: &str = "?";

/// Opcodes without an argument.
const BARE: &[u8] = b"()012NQRb]aeslutdo}.\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98";
/// Opcodes that leave the last two texts unchanged.
const SILENT: &[u8] = b"\x94\x80\x95qrp";
const STOP: u8 = b'.';
const MEMOIZE: u8 = 0x94;
const STACK_GLOBAL: u8 = 0x93;
/// Most memoised objects that are remembered. In a pickle with more, names from the memo are unknown.
const MOST_MEMOISED: usize = 4 << 20;

/// The argument of an opcode.
#[derive(Clone, Copy)]
enum Argument {
    /// This many bytes.
    Bytes(usize),
    /// A number with this many bytes, and then as many bytes as it says.
    Counted(usize),
    /// This many lines.
    Lines(usize),
}

/// The names of one pickle, and the bytes after it; `None` if the bytes are not a pickle or are cut off.
pub fn names(bytes: &[u8]) -> Option<(Names, &[u8])> {
    let mut reader = Reader {
        rest: bytes,
        texts: [None, None],
        memo: Some(HashMap::new()),
        names: Names::new(),
        seen: HashSet::new(),
    };
    while !reader.step()? {}
    Some((reader.names, reader.rest))
}

struct Reader<'a> {
    rest: &'a [u8],
    /// The last two objects on the stack, if they are texts.
    texts: [Option<&'a str>; 2],
    /// The memoised objects, by index, with their text if they are texts; `None` if there were too many.
    memo: Option<HashMap<u64, Option<&'a str>>>,
    names: Names,
    seen: HashSet<String>,
}

// === impl Reader ===

impl<'a> Reader<'a> {
    /// Reads one opcode; returns whether it was the last.
    fn step(&mut self) -> Option<bool> {
        let (&opcode, rest) = self.rest.split_first()?;
        self.rest = rest;
        let argument = self.argument(argument(opcode)?)?;
        match opcode {
            STOP => return Some(true),
            b'c' | b'i' => self.global(argument),
            STACK_GLOBAL => self.stacked(),
            b'X' | 0x8c | 0x8d | b'V' => self.push(text(argument)),
            b'h' | b'j' | b'g' => {
                let at = place(opcode, argument)?;
                let known = self.memo.as_ref().and_then(|memo| memo.get(&at));
                self.push(known.copied().flatten());
            }
            b'q' | b'r' | b'p' => {
                let at = place(opcode, argument)?;
                self.remember(at);
            }
            MEMOIZE => {
                let at = self.memo.as_ref().map_or(0, HashMap::len);
                self.remember(at as u64);
            }
            _ if SILENT.contains(&opcode) => {}
            _ => self.push(None),
        }
        Some(false)
    }

    fn argument(&mut self, argument: Argument) -> Option<&'a [u8]> {
        match argument {
            Argument::Bytes(bytes) => self.take(bytes),
            Argument::Counted(bytes) => {
                let count = number(self.take(bytes)?);
                self.take(usize::try_from(count).ok()?)
            }
            Argument::Lines(lines) => {
                let ends = self.rest.iter().enumerate();
                let mut ends = ends.filter(|(_, byte)| **byte == b'\n');
                let (end, _) = ends.nth(lines - 1)?;
                self.take(end + 1)
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn push(&mut self, text: Option<&'a str>) {
        self.texts = [self.texts[1], text];
    }

    /// Keeps an index for every memoised object, because later ones are counted by it.
    fn remember(&mut self, at: u64) {
        if let Some(memo) = &mut self.memo {
            memo.insert(at, self.texts[1]);
            if memo.len() > MOST_MEMOISED {
                self.memo = None;
            }
        }
    }

    fn global(&mut self, lines: &[u8]) {
        let lines = String::from_utf8_lossy(lines);
        self.name(lines.trim_end().replace('\n', " "));
    }

    fn stacked(&mut self) {
        let name = match &self.texts {
            [Some(module), Some(name)] => format!("{module} {name}"),
            _ => UNKNOWN.to_owned(),
        };
        self.name(name);
    }

    fn name(&mut self, name: String) {
        if self.seen.insert(name.clone()) {
            self.names.push(name);
        }
        self.push(None);
    }
}

fn argument(opcode: u8) -> Option<Argument> {
    Some(match opcode {
        b'K' | b'h' | b'q' | 0x80 | 0x82 => Argument::Bytes(1),
        b'M' | 0x83 => Argument::Bytes(2),
        b'J' | b'j' | b'r' | 0x84 => Argument::Bytes(4),
        b'G' | 0x95 => Argument::Bytes(8),
        b'U' | b'C' | 0x8a | 0x8c => Argument::Counted(1),
        b'T' | b'B' | b'X' | 0x8b => Argument::Counted(4),
        0x8d | 0x8e | 0x96 => Argument::Counted(8),
        b'F' | b'I' | b'L' | b'P' | b'S' | b'V' | b'g' | b'p' => Argument::Lines(1),
        b'c' | b'i' => Argument::Lines(2),
        _ if BARE.contains(&opcode) => Argument::Bytes(0),
        _ => return None,
    })
}

/// The memo's index in an argument, in bytes or in decimals.
fn place(opcode: u8, argument: &[u8]) -> Option<u64> {
    match opcode {
        b'g' | b'p' => std::str::from_utf8(argument).ok()?.trim().parse().ok(),
        _ => Some(number(argument)),
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    Some(text.trim_end_matches('\n'))
}

fn number(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What Python wrote of `collections.OrderedDict(a=1)`, by protocol.
    const WRITTEN: [&[u8]; 3] = [
        b"ccollections\nOrderedDict\np0\n(tRp1\nVa\np2\nI1\ns.",
        b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01X\x01\x00\x00\x00aq\x02K\x01s.",
        b"\x80\x04\x95,\x00\x00\x00\x00\x00\x00\x00\x8c\x0bcollections\x94\x8c\x0bOrderedDict\x94\x93\x94)R\x94\x8c\x01a\x94K\x01s.",
    ];

    #[test]
    fn names_are_found_in_every_protocol() {
        for written in WRITTEN {
            let more = [written, b"behind"].concat();
            let (names, rest) = names(&more).expect("a pickle");
            assert_eq!(names, ["collections OrderedDict"], "{written:?}");
            assert_eq!(rest, b"behind");
        }
    }

    #[test]
    fn a_name_from_the_memo_is_found_and_a_computed_one_is_unknown() {
        // `torch`, then `A` of it, then `B` of the same text from the memo.
        let twice = b"\x80\x04\x8c\x05torch\x94\x8c\x01A\x94\x93\x94h\x00\x8c\x01B\x93.";
        let (found, _) = names(twice).expect("a pickle");
        assert_eq!(found, ["torch A", "torch B"]);
        let (computed, _) = names(b"\x80\x04\x8c\x02os\x8c\x06system\x86\x93.").expect("a pickle");
        assert_eq!(computed, [UNKNOWN]);
    }

    #[test]
    fn a_long_text_that_is_memoised_again_and_again_is_not_copied() {
        // A mebibyte of text and five million marks of it: names from the memo are unknown, and others are found.
        let mut pickle = b"\x80\x04X\x00\x00\x10\x00".to_vec();
        pickle.extend(std::iter::repeat_n(b'a', 1 << 20));
        pickle.extend(std::iter::repeat_n(MEMOIZE, 5 << 20));
        pickle.extend(b"h\x00\x8c\x01B\x93cos\nsystem\n.");
        let (found, _) = names(&pickle).expect("a pickle");
        assert_eq!(found, [UNKNOWN, "os system"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some((_, rest)) = names(&bytes) {
                prop_assert!(rest.len() < bytes.len());
            }
        }

        #[test]
        fn a_pickle_that_breaks_off_is_refused(at in 0..WRITTEN[2].len()) {
            prop_assert!(names(&WRITTEN[2][..at]).is_none());
        }
    }
}
