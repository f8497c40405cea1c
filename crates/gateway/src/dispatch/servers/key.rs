//! The key by which a request is hashed to a server.

use weir_config::{Balance, HashBy, Runtime};
use weir_pool::{ServerId, mixed};
use weir_semantics::cookies;

use crate::{dispatch::PoolHandle, record::Record};

impl PoolHandle {
    /// The hash of the request's key, if the pool chooses servers by a key and the request has it. All gateways
    /// compute the same value, also in later versions.
    pub(crate) fn hash_key(&self, record: &Record) -> Option<u64> {
        let Runtime::Servers(settings) = &self.settings.runtime else {
            return None;
        };
        let Balance::Hash { by, .. } = &settings.balance else {
            return None;
        };
        let param = |name: &[u8]| record.params.as_ref().and_then(|params| params.get(name));
        match by {
            HashBy::Source => {
                let in_front = param(b"REMOTE_ADDR");
                Some(hash(
                    in_front.unwrap_or(record.endpoints.remote_addr().as_bytes()),
                ))
            }
            HashBy::Uri => {
                let in_front = param(b"REQUEST_URI").or_else(|| param(b"SCRIPT_NAME"));
                let path = in_front.unwrap_or(&record.path);
                let end = path.iter().position(|byte| *byte == b'?');
                Some(hash(&path[..end.unwrap_or(path.len())]))
            }
            HashBy::Header(name) => record.header(name).map(hash),
            HashBy::Cookie(name) => {
                let header = record.header("cookie")?;
                cookies::values(header, name.as_bytes()).next().map(hash)
            }
        }
    }
}

impl PoolHandle {
    /// The number of the server that the client is to stay with, if its cookie says one (`sticky`).
    pub(crate) fn sticks_to(&self, record: &Record) -> Option<u32> {
        let Runtime::Servers(settings) = &self.settings.runtime else {
            return None;
        };
        let name = settings.sticky.as_ref()?;
        let header = record.header("cookie")?;
        let mut values = cookies::values(header, name.as_bytes());
        let value = std::str::from_utf8(values.next()?).ok()?;
        u32::from_str_radix(value, 16).ok()
    }

    /// The cookie by which the client stays with `server`, unless it has it.
    pub(crate) fn sticky_cookie(
        &self,
        record: &Record,
        server: Option<ServerId>,
    ) -> Option<String> {
        let Runtime::Servers(settings) = &self.settings.runtime else {
            return None;
        };
        let name = settings.sticky.as_ref()?;
        let number = {
            let mut state = self.state();
            state.group.as_mut()?.member_mut(server?)?.number
        };
        let secure = match record.endpoints.is_https {
            true => "; Secure",
            false => "",
        };
        let is_new = self.sticks_to(record) != Some(number);
        is_new.then(|| format!("{name}={number:06x}; Path=/; HttpOnly; SameSite=Lax{secure}"))
    }
}

/// A server's number in cookies, of the hash of its address. It is the same in all gateways, and too short to find the address by
/// trying.
pub(super) fn number(key: u64) -> u32 {
    key as u32 & 0x00ff_ffff
}

/// FNV-1a with mixed bits.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let fnv = bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    mixed(fnv)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_never_changes() {
        // A fixed value: other gateways and other versions must spread keys in the same way.
        assert_eq!(hash(b""), mixed(0xCBF2_9CE4_8422_2325));
        assert_eq!(hash(b"a"), mixed(0xAF63_DC4C_8601_EC8C));
    }
}
