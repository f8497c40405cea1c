//! The symbols of programs and shared objects (elf(5)) that weir-php needs. Only 64-bit files for this machine are
//! read.
//!
//! The files are read like bytes from outside: every offset in them is checked.

use std::collections::BTreeSet;

/// A program or shared object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Elf {
    /// Whether it asks for the loader. A program that is linked statically does not.
    pub(super) has_loader: bool,
    /// The symbols that other objects can use.
    pub(super) defined: BTreeSet<String>,
    /// The symbols that it must find in other objects, except those of libraries with versions, such as the C library.
    pub(super) wanted: BTreeSet<String>,
}

impl Elf {
    /// Parses a file. `None`: it is not such a file.
    pub(super) fn parse(file: &[u8]) -> Option<Self> {
        let is_64_bit = file.starts_with(b"\x7fELF\x02") && file.get(5) == Some(&NATIVE);
        if !is_64_bit {
            return None;
        }
        let programs = table(file, 32, 54, 56)?;
        let sections = table(file, 40, 58, 60)?;
        let has_loader = programs
            .iter()
            .any(|part| u32_at(part, 0) == Some(PT_INTERP));
        let mut elf = Self {
            has_loader,
            defined: BTreeSet::new(),
            wanted: BTreeSet::new(),
        };
        let of_kind = |kind: u32| sections.iter().find(|s| u32_at(s, 4) == Some(kind));
        let Some(symbols) = of_kind(SHT_DYNSYM) else {
            return Some(elf);
        };
        let names = section(
            file,
            sections.get(usize::try_from(u32_at(symbols, 40)?).ok()?)?,
        )?;
        let versions = of_kind(SHT_GNU_VERSYM).and_then(|versions| section(file, versions));
        for (index, symbol) in section(file, symbols)?.chunks_exact(SYMBOL).enumerate() {
            let name = text(names, u32_at(symbol, 0)?)?;
            let weak = symbol[4] >> 4 == STB_WEAK;
            let version = versions.and_then(|versions| u16_at(versions, index * 2));
            match u16_at(symbol, 6)? {
                0 if !weak && !name.is_empty() && version.is_none_or(|version| version < 2) => {
                    elf.wanted.insert(name);
                }
                0 => {}
                _ => {
                    elf.defined.insert(name);
                }
            }
        }
        Some(elf)
    }
}

/// The entries of a table that the head of the file describes: where its offset, the size of an entry, and their number
/// are.
fn table(file: &[u8], offset: usize, size: usize, count: usize) -> Option<Vec<&[u8]>> {
    let begin = usize::try_from(u64_at(file, offset)?).ok()?;
    let (size, count) = (
        usize::from(u16_at(file, size)?),
        usize::from(u16_at(file, count)?),
    );
    let entry = |index: usize| {
        let at = begin.checked_add(index.checked_mul(size)?)?;
        file.get(at..at.checked_add(size)?)
    };
    (0..count).map(entry).collect()
}

fn section<'a>(file: &'a [u8], head: &[u8]) -> Option<&'a [u8]> {
    let begin = usize::try_from(u64_at(head, 24)?).ok()?;
    let size = usize::try_from(u64_at(head, 32)?).ok()?;
    file.get(begin..begin.checked_add(size)?)
}

fn text(names: &[u8], at: u32) -> Option<String> {
    let rest = names.get(usize::try_from(at).ok()?..)?;
    let end = memchr::memchr(0, rest)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

/// The order of bytes of this machine: `ELFDATA2LSB` or `ELFDATA2MSB`.
const NATIVE: u8 = if cfg!(target_endian = "little") { 1 } else { 2 };

/// The part of a program that names its loader.
const PT_INTERP: u32 = 3;

/// The section with the symbols for the loader.
const SHT_DYNSYM: u32 = 11;

/// The section with the versions of these symbols.
const SHT_GNU_VERSYM: u32 = 0x6fff_ffff;

/// Size of a symbol, bytes.
const SYMBOL: usize = 24;

/// A symbol that may be missing.
const STB_WEAK: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_this_program_are_read_and_cut_files_are_refused() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let elf = Elf::parse(&file).unwrap();
        assert!(elf.has_loader);
        // The C library's have versions.
        assert!(!elf.wanted.contains("malloc"), "{:?}", elf.wanted);
        for length in [0, 4, 5, 6, 40, 63, 64, 200, file.len() / 2] {
            if let Some(elf) = Elf::parse(&file[..length]) {
                assert!(elf.defined.is_empty() && elf.wanted.is_empty());
            }
        }
        let mut other = file.clone();
        other[4] = 1;
        assert_eq!(Elf::parse(&other), None, "a 32-bit file");
        // Wild offsets.
        for at in 32..64 {
            let mut wild = file.clone();
            wild[at] ^= 0xff;
            let _ = Elf::parse(&wild);
        }
    }
}
