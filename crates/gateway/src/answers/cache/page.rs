//! A stored page: its head, and how that is kept.

use std::{io, path::Path};

use http::StatusCode;
use weir_cache::{
    FieldList, Fields as _, Life, Lines,
    disk::DiskSettings,
    store::{Head, Object, Settings},
};
use weir_config::Config;
use weir_control::path_inside;
use weir_http::Fields;
use weir_http1::Name;

/// A stored page.
pub(crate) type StoredPage = Object<Kept>;

/// The head of a stored page. Its fields are copied into an answer as they are.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(super) status: StatusCode,
    pub(super) fields: Fields,
    pub(super) life: Life,
}

impl Kept {
    pub(super) fn new(status: StatusCode, fields: &FieldList, life: Life) -> Kept {
        let mut lines = Fields::with_capacity(fields.as_bytes().len());
        for (name, value) in fields.all() {
            lines.push_read((Name::of(name), name), value);
        }
        Kept {
            status,
            fields: lines,
            life,
        }
    }

    /// The fields, as the rules see them.
    pub(super) fn lines(&self) -> Lines<'_> {
        Lines(self.fields.lines())
    }
}

impl Head for Kept {
    const FORMAT: u32 = 1;

    fn weight(&self) -> usize {
        self.fields.lines().len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.status.as_u16().to_le_bytes());
        out.extend_from_slice(&self.life.to_bytes());
        out.extend_from_slice(self.fields.lines());
    }

    fn read(bytes: &[u8]) -> Option<Kept> {
        let (status, bytes) = bytes.split_first_chunk()?;
        let status = StatusCode::from_u16(u16::from_le_bytes(*status)).ok()?;
        let (life, lines) = bytes.split_first_chunk()?;
        let fields = FieldList::from_bytes(lines.to_vec()).ok()?;
        Some(Kept::new(status, &fields, Life::from_bytes(life)?))
    }
}

/// What the configuration allows to store.
pub(super) fn limits(config: &Config, settings: &weir_config::Cache) -> Settings {
    let rules = config.sites.iter().flat_map(|site| {
        let routes = site.routes.iter().map(|route| &route.settings);
        std::iter::once(&site.settings).chain(routes)
    });
    let variants = rules.filter_map(|settings| Some(settings.cache.as_ref()?.max_variants));
    Settings {
        memory: settings.memory,
        max_object: settings.max_object,
        max_objects: settings.max_objects,
        max_variants: variants.max().unwrap_or(1),
    }
}

/// Where pages are stored. `chroot`: the gateway's.
///
/// # Errors
///
/// The folder is outside of it.
pub(super) fn disk(
    settings: &weir_config::Cache,
    folder: &Path,
    chroot: Option<&Path>,
) -> io::Result<DiskSettings> {
    let inside = match chroot {
        Some(chroot) => path_inside(chroot, folder),
        None => Some(folder.to_owned()),
    };
    let outside = || {
        let text = format!("disk: {} is outside of chroot", folder.display());
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    Ok(DiskSettings {
        folder: inside.ok_or_else(outside)?,
        max: settings.max_disk,
        file_from: settings.file_from,
    })
}

#[cfg(test)]
mod tests {
    use weir_cache::rules::Staleness;

    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let fields = Lines(b"Content-Type: text/html\r\nX-Many: 1\r\nX-Many: 2\r\n");
        let life = Life {
            made: 1_800_000_000_000,
            lifetime: 60_000,
            stale_while_revalidate: 1,
            stale_if_error: 2,
            staleness: Staleness::OriginsWord,
            is_for_all: true,
        };
        let list = FieldList::of(&fields, |_| true);
        let kept = Kept::new(StatusCode::NOT_FOUND, &list, life);
        let mut bytes = Vec::new();
        kept.write(&mut bytes);
        let read = Kept::read(&bytes).unwrap();
        assert_eq!((read.status, read.life), (kept.status, kept.life));
        assert_eq!(read.fields.lines(), fields.0);
        assert!(read.fields.has(Name::ContentType));
        assert!(Kept::read(&bytes[..bytes.len() - 1]).is_none());
        assert!(Kept::read(&bytes[..20]).is_none());
    }
}
