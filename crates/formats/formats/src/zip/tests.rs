use std::io::Write;

use flate2::{Compression, write::DeflateEncoder};
use proptest::prelude::*;

use super::*;

fn archive(members: &[(&str, &[u8])]) -> Bytes {
    let new: Vec<NewMember> = members
        .iter()
        .map(|(name, content)| NewMember {
            name: (*name).to_owned(),
            bytes: content.len() as u64,
            crc: crc32fast::hash(content),
        })
        .collect();
    let mut file = Vec::new();
    for (member, (_, content)) in new.iter().zip(members) {
        file.extend_from_slice(&member.header());
        file.extend_from_slice(content);
    }
    file.extend_from_slice(&directory_of(&new));
    file.into()
}

/// One member, as other programs pack it: sizes in four bytes.
fn packed(content: &[u8], method: u16, flags: u16) -> Vec<u8> {
    let bytes = match method {
        8 => {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(content).expect("memory takes it");
            encoder.finish().expect("memory takes it")
        }
        _ => content.to_vec(),
    };
    let mut common = Vec::new();
    for field in [20, flags, method, 0, 0x21] {
        common.extend_from_slice(&u16::to_le_bytes(field));
    }
    common.extend_from_slice(&crc32fast::hash(content).to_le_bytes());
    common.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    common.extend_from_slice(&(content.len() as u32).to_le_bytes());
    common.extend_from_slice(&[1, 0, 0, 0]);
    let mut file = LOCAL.to_le_bytes().to_vec();
    file.extend_from_slice(&common);
    file.push(b'x');
    file.extend_from_slice(&bytes);
    let directory_at = file.len();
    file.extend_from_slice(&CENTRAL.to_le_bytes());
    file.extend_from_slice(&[20, 0]);
    file.extend_from_slice(&common);
    file.extend_from_slice(&[0; 14]);
    file.push(b'x');
    let directory_bytes = file.len() - directory_at;
    file.extend_from_slice(&END.to_le_bytes());
    file.extend_from_slice(&[0, 0, 0, 0, 1, 0, 1, 0]);
    file.extend_from_slice(&(directory_bytes as u32).to_le_bytes());
    file.extend_from_slice(&(directory_at as u32).to_le_bytes());
    file.extend_from_slice(&[0; 2]);
    file
}

fn only(file: Vec<u8>, limit: u64) -> Result<Bytes, Problem> {
    let archive = Archive::open(file.into())?;
    archive.read(&archive.entries()[0], limit)
}

#[test]
fn what_is_written_is_read_back() {
    let members: [(&str, &[u8]); 3] = [("a.npy", b"first"), ("b.npy", b""), ("c", &[7; 999])];
    let archive = Archive::open(archive(&members)).expect("an archive");
    let read = archive.entries().iter().map(|entry| {
        let content = archive.read(entry, 999).expect("a member");
        (entry.name.clone(), content.to_vec())
    });
    let expected = members.map(|(name, content)| (name.to_owned(), content.to_vec()));
    assert_eq!(read.collect::<Vec<_>>(), expected);
}

#[test]
fn what_others_pack_is_unpacked_up_to_the_limit() {
    let content = [5; 10_000];
    for method in [0, 8] {
        let file = packed(&content, method, 0);
        assert!(is_archive(&file));
        assert_eq!(only(file.clone(), 10_000).expect("it fits"), content[..]);
        assert_eq!(only(file, 9_999), Err(Problem::TooLarge(9_999)));
    }
}

/// What a directory says is where memory is taken from, and no more than that.
#[test]
fn sizes_that_are_said_wrongly_change_nothing_but_the_refusal() {
    let content = [5; 300_000];
    for said in [0, 1, 299_999, 300_001, 4_000_000] {
        let archive = Archive::open(packed(&content, 8, 0).into()).expect("an archive");
        let entry = Entry {
            bytes: said,
            ..archive.entries()[0].clone()
        };
        let read = |limit| archive.read(&entry, limit);
        assert_eq!(read(4_000_000).expect("it fits"), content[..], "{said}");
        assert_eq!(read(299_999), Err(Problem::TooLarge(299_999)), "{said}");
        let begins = archive.beginning(&entry, 10).expect("a member");
        assert_eq!(begins, content[..10]);
    }
    let stored = Archive::open(packed(&content, 0, 0).into()).expect("an archive");
    let begins = stored.beginning(&stored.entries()[0], 10);
    assert_eq!(begins.expect("a member"), content[..10]);
}

#[test]
fn what_cannot_be_unpacked_is_refused() {
    let content = b"some numbers";
    assert_eq!(only(packed(content, 12, 0), 99), Err(Problem::Method(12)));
    assert_eq!(only(packed(content, 0, 1), 99), Err(Problem::Encrypted));
    let mut damaged = packed(content, 0, 0);
    damaged[33] ^= 1;
    assert!(matches!(only(damaged, 99), Err(Problem::Damaged(_))));
    let mut broken = packed(&[1; 500], 8, 0);
    broken[31] = 0xff;
    assert!(matches!(only(broken, 999), Err(Problem::Damaged(_))));
    assert_eq!(only(Vec::new(), 99), Err(Problem::Directory));
}

proptest! {
    #[test]
    fn damage_panics_nowhere(at in 0..600_usize, value: u8, end in 0..700_usize) {
        let mut file = packed(&[3; 400], 0, 0);
        file.extend_from_slice(&archive(&[("a", b"x")]));
        let at = at % file.len();
        file[at] = value;
        file.truncate(end.max(1));
        if let Ok(archive) = Archive::open(file.into()) {
            for entry in archive.entries() {
                drop(archive.read(entry, 1000));
            }
        }
    }
}
