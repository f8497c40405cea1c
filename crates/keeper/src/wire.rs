//! The messages between the manager and the keeper as packets: a byte for the kind, then fields in network order.

use std::os::fd::OwnedFd;

use weir_sys::identity::Identity;

/// From the manager to the keeper. `F`: a descriptor.
#[derive(Debug, PartialEq, Eq)]
pub enum ToKeeper<F = OwnedFd> {
    /// The first message: the user to become; `None`: the keeper stays the present user.
    Become(Option<Identity>),
    /// Read these files. Answered with [`FromKeeper::Loaded`] or [`FromKeeper::Failed`], in order.
    Load {
        /// The number of the key from now on.
        number: u32,
        chain: F,
        key: F,
    },
    /// Make a key. Answered with [`FromKeeper::Made`] or [`FromKeeper::Failed`] (number 0).
    Make(Order<F>),
    /// This key is not needed any more.
    Forget(u32),
    /// The channel of a reactor: answer there.
    Serve(F),
}

/// A key to make, and its use.
#[derive(Debug, PartialEq, Eq)]
pub struct Order<F = OwnedFd> {
    /// The result that is made with the key.
    pub product: Product<F>,
    /// Host names and addresses that it is for. Of an authority: the domains and networks for which it may sign.
    pub names: Vec<String>,
    /// How long it is valid. A request has no days.
    pub days: u32,
    /// The key is written here (PKCS #8, PEM).
    pub key: F,
}

/// The result that is made with a new key.
#[derive(Debug, PartialEq, Eq)]
pub enum Product<F = OwnedFd> {
    /// A request for a certificate (PKCS #10, DER).
    Request,
    /// The certificate of a local authority (PEM).
    Authority,
    /// A certificate of the local authority that has this key (PEM).
    Certificate {
        /// The file of the authority's key.
        authority_key: F,
    },
}

/// From the keeper to the manager.
#[derive(Debug, PartialEq, Eq)]
pub enum FromKeeper {
    /// The keeper has given up its rights.
    Ready {
        /// The kernel filters its system calls.
        is_confined: bool,
    },
    /// The key is there.
    Loaded {
        number: u32,
        /// The certificate and those of its authorities (DER).
        chain: Vec<Vec<u8>>,
        /// What the operator should know of it.
        warnings: Vec<String>,
    },
    /// The public result of an [`Order`].
    Made(Vec<u8>),
    /// The files cannot be used, or what was ordered cannot be made.
    Failed {
        number: u32,
        /// The cause is in the file of the key.
        in_key: bool,
        /// The cause and what to do.
        message: String,
    },
    /// The keeper ends, for this reason.
    Unfit(String),
}

/// A packet is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut;

impl<F> ToKeeper<F> {
    /// The packet, and the descriptors to attach.
    pub fn encode(&self) -> (Vec<u8>, Vec<&F>) {
        let mut out = Vec::new();
        match self {
            ToKeeper::Become(who) => {
                out.push(BECOME);
                if let Some(who) = who {
                    put(&mut out, who.uid);
                    put(&mut out, who.gid);
                }
                (out, Vec::new())
            }
            ToKeeper::Load { number, chain, key } => {
                out.push(LOAD);
                put(&mut out, *number);
                (out, vec![chain, key])
            }
            ToKeeper::Make(order) => {
                let mut descriptors = vec![&order.key];
                out.push(MAKE);
                out.push(match &order.product {
                    Product::Request => REQUEST,
                    Product::Authority => AUTHORITY,
                    Product::Certificate { authority_key } => {
                        descriptors.push(authority_key);
                        CERTIFICATE
                    }
                });
                put(&mut out, order.days);
                put(&mut out, order.names.len() as u32);
                for name in &order.names {
                    chunk(&mut out, name.as_bytes());
                }
                (out, descriptors)
            }
            ToKeeper::Forget(number) => {
                out.push(FORGET);
                put(&mut out, *number);
                (out, Vec::new())
            }
            ToKeeper::Serve(socket) => {
                out.push(SERVE);
                (out, vec![socket])
            }
        }
    }

    /// Reads a packet with its descriptors.
    ///
    /// # Errors
    /// If it is none of [`Self::encode`].
    pub fn decode(packet: &[u8], descriptors: Vec<F>) -> Result<ToKeeper<F>, Cut> {
        let (kind, mut rest) = packet.split_first().ok_or(Cut)?;
        let mut descriptors = descriptors.into_iter();
        let message = match *kind {
            BECOME if rest.is_empty() => ToKeeper::Become(None),
            BECOME => ToKeeper::Become(Some(Identity {
                uid: number(&mut rest)?,
                gid: number(&mut rest)?,
                groups: Vec::new(),
            })),
            LOAD => ToKeeper::Load {
                number: number(&mut rest)?,
                chain: descriptors.next().ok_or(Cut)?,
                key: descriptors.next().ok_or(Cut)?,
            },
            MAKE => {
                let (product, after) = rest.split_first().ok_or(Cut)?;
                rest = after;
                let days = number(&mut rest)?;
                let names = list(&mut rest, text)?;
                let key = descriptors.next().ok_or(Cut)?;
                let product = match *product {
                    REQUEST => Product::Request,
                    AUTHORITY => Product::Authority,
                    CERTIFICATE => Product::Certificate {
                        authority_key: descriptors.next().ok_or(Cut)?,
                    },
                    _ => return Err(Cut),
                };
                ToKeeper::Make(Order {
                    product,
                    names,
                    days,
                    key,
                })
            }
            FORGET => ToKeeper::Forget(number(&mut rest)?),
            SERVE => ToKeeper::Serve(descriptors.next().ok_or(Cut)?),
            _ => return Err(Cut),
        };
        match (rest, descriptors.next()) {
            ([], None) => Ok(message),
            _ => Err(Cut),
        }
    }
}

impl FromKeeper {
    /// The packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            FromKeeper::Ready { is_confined } => out.extend([READY, u8::from(*is_confined)]),
            FromKeeper::Loaded {
                number,
                chain,
                warnings,
            } => {
                out.push(LOADED);
                put(&mut out, *number);
                put(&mut out, chain.len() as u32);
                chain.iter().for_each(|one| chunk(&mut out, one));
                put(&mut out, warnings.len() as u32);
                warnings
                    .iter()
                    .for_each(|one| chunk(&mut out, one.as_bytes()));
            }
            FromKeeper::Made(public) => {
                out.push(MADE);
                chunk(&mut out, public);
            }
            FromKeeper::Failed {
                number,
                in_key,
                message,
            } => {
                out.push(FAILED);
                put(&mut out, *number);
                out.push(u8::from(*in_key));
                chunk(&mut out, message.as_bytes());
            }
            FromKeeper::Unfit(cause) => {
                out.push(UNFIT);
                chunk(&mut out, cause.as_bytes());
            }
        }
        out
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// If it is none of [`Self::encode`].
    pub fn decode(packet: &[u8]) -> Result<FromKeeper, Cut> {
        let (kind, mut rest) = packet.split_first().ok_or(Cut)?;
        let from = &mut rest;
        let message = match *kind {
            READY => FromKeeper::Ready {
                is_confined: flag(from)?,
            },
            LOADED => FromKeeper::Loaded {
                number: number(from)?,
                chain: list(from, |bytes| Ok(bytes.to_vec()))?,
                warnings: list(from, text)?,
            },
            MADE => FromKeeper::Made(take_chunk(from)?.to_vec()),
            FAILED => FromKeeper::Failed {
                number: number(from)?,
                in_key: flag(from)?,
                message: text(take_chunk(from)?)?,
            },
            UNFIT => FromKeeper::Unfit(text(take_chunk(from)?)?),
            _ => return Err(Cut),
        };
        match rest {
            [] => Ok(message),
            _ => Err(Cut),
        }
    }
}

fn put(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

fn chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

fn number(from: &mut &[u8]) -> Result<u32, Cut> {
    let (number, rest) = from.split_first_chunk().ok_or(Cut)?;
    *from = rest;
    Ok(u32::from_be_bytes(*number))
}

fn flag(from: &mut &[u8]) -> Result<bool, Cut> {
    let (flag, rest) = from.split_first().ok_or(Cut)?;
    *from = rest;
    match flag {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Cut),
    }
}

fn take_chunk<'a>(from: &mut &'a [u8]) -> Result<&'a [u8], Cut> {
    let length = number(from)? as usize;
    let (chunk, rest) = from.split_at_checked(length).ok_or(Cut)?;
    *from = rest;
    Ok(chunk)
}

fn text(bytes: &[u8]) -> Result<String, Cut> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Cut)
}

fn list<T>(from: &mut &[u8], each: impl Fn(&[u8]) -> Result<T, Cut>) -> Result<Vec<T>, Cut> {
    let count = number(from)? as usize;
    // Each has at least its length.
    if count > from.len() / 4 {
        return Err(Cut);
    }
    (0..count).map(|_| each(take_chunk(from)?)).collect()
}

const BECOME: u8 = 1;
const LOAD: u8 = 2;
const FORGET: u8 = 3;
const SERVE: u8 = 4;
const MAKE: u8 = 5;

const REQUEST: u8 = 0;
const AUTHORITY: u8 = 1;
const CERTIFICATE: u8 = 2;

const READY: u8 = 1;
const LOADED: u8 = 2;
const FAILED: u8 = 3;
const UNFIT: u8 = 4;
const MADE: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_their_way_and_parts_of_them_are_refused() {
        let who = Identity {
            uid: 65_530,
            gid: 65_530,
            groups: Vec::new(),
        };
        let order = |product| {
            ToKeeper::Make(Order {
                product,
                names: vec!["localhost".into(), "::1".into()],
                days: 30,
                key: 4,
            })
        };
        let to: [ToKeeper<u8>; 8] = [
            order(Product::Request),
            order(Product::Authority),
            order(Product::Certificate { authority_key: 5 }),
            ToKeeper::Become(None),
            ToKeeper::Become(Some(who)),
            ToKeeper::Load {
                number: 7,
                chain: 1,
                key: 2,
            },
            ToKeeper::Forget(u32::MAX),
            ToKeeper::Serve(3),
        ];
        for message in to {
            let (packet, descriptors) = message.encode();
            let descriptors: Vec<u8> = descriptors.into_iter().copied().collect();
            let longer = [&packet[..], &[0]].concat();
            assert_eq!(ToKeeper::decode(&longer, descriptors.clone()), Err(Cut));
            let more = [&descriptors[..], &[9]].concat();
            assert_eq!(ToKeeper::decode(&packet, more), Err(Cut));
            assert_eq!(ToKeeper::decode(&packet, descriptors), Ok(message));
        }
        let from = [
            FromKeeper::Ready { is_confined: true },
            FromKeeper::Loaded {
                number: 1,
                chain: vec![b"leaf".to_vec(), Vec::new()],
                warnings: vec!["it expires".into()],
            },
            FromKeeper::Failed {
                number: 2,
                in_key: true,
                message: "no key".into(),
            },
            FromKeeper::Made(b"public".to_vec()),
            FromKeeper::Unfit("no".into()),
        ];
        for message in from {
            let packet = message.encode();
            assert!((0..packet.len()).all(|end| FromKeeper::decode(&packet[..end]) == Err(Cut)));
            assert_eq!(FromKeeper::decode(&[&packet[..], &[0]].concat()), Err(Cut));
            assert_eq!(FromKeeper::decode(&packet), Ok(message));
        }
    }
}
