//! weir's local authority: certificates for names that no public authority signs, made here and renewed in time.
//!
//! The keeper makes all keys and signs with the authority's key, which it gets by descriptor for each certificate. This file
//! decides what is to be made, and puts the results into the folder of certificates. From there they are used as all changed
//! files are.

use std::{
    cell::RefCell,
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use weir_acme::{Draft, Issued, Lock, Store, is_issued, now};
use weir_config::{AutoCertificate, Certificate, Config, Issuer, LOCAL_DOMAINS, LOCAL_NETWORKS};
use weir_keeper::{Order, Product};

use super::keeper::{Answer, Keeper};

/// The certificates of a configuration that the local authority signs.
#[derive(Debug)]
pub(crate) struct LocalCertificates {
    keeper: Rc<RefCell<Keeper>>,
    store: Store,
    list: Vec<Local>,
    /// The position in `list` at which to continue.
    place: usize,
    /// What the keeper makes now.
    making: Option<Making>,
    /// InstalledCertificate until the certificate is there whose turn it is.
    lock: Option<Lock>,
    /// One that was late is there.
    is_late_made: bool,
    look_at: Instant,
}

/// A certificate of the local CA.
#[derive(Debug)]
struct Local {
    certificate: Certificate,
    auto: AutoCertificate,
    /// Why the certificate could not be renewed, as in the log.
    failed: Option<String>,
    /// The certificate must be made, but another process makes certificates at the moment.
    is_late: bool,
    /// The certificate must be made although its file is valid, because the keeper cannot use it.
    in_any_case: bool,
}

/// What the keeper was asked to make.
#[derive(Debug)]
struct Making {
    is_authority: bool,
    key: Draft,
    chain: PathBuf,
    answer: Answer<Vec<u8>>,
}

/// The result for a certificate whose turn it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The certificate is there.
    Done,
    /// Another process has the lock.
    Locked,
    /// The keeper makes something for it.
    Asked,
}

impl LocalCertificates {
    /// `None`: the configuration has no such certificate. Nothing is made yet: [`go_on`](Self::go_on) makes what is missing.
    ///
    /// # Errors
    /// Why the folder of certificates cannot be used.
    pub(crate) fn prepare(
        config: &Config,
        keeper: &Rc<RefCell<Keeper>>,
        now: Instant,
    ) -> Result<Option<LocalCertificates>, String> {
        let list = config.certificates.iter().filter_map(|certificate| {
            let auto = certificate.auto.clone();
            Some(Local {
                auto: auto.filter(|auto| auto.issuer == Issuer::Local)?,
                certificate: certificate.clone(),
                failed: None,
                is_late: false,
                in_any_case: false,
            })
        });
        let list: Vec<Local> = list.collect();
        if list.is_empty() {
            return Ok(None);
        }
        Ok(Some(LocalCertificates {
            keeper: keeper.clone(),
            store: Store::open(&config.tls.certificates)?,
            list,
            place: 0,
            making: None,
            lock: None,
            is_late_made: false,
            look_at: now + LOOK_EVERY,
        }))
    }

    /// Makes what is to be made, one after another. This thread is there for all pools and waits for nobody: `false`: the keeper
    /// has not made one yet, so call again. What another process keeps from being made is [late](Self::is_late), and made by
    /// [`tick`](Self::tick).
    ///
    /// # Errors
    /// Why one of them cannot be made. The others follow with the next call.
    pub(crate) fn go_on(&mut self, now: Instant) -> Result<bool, String> {
        while self.place < self.list.len() {
            let turn = self.renew(self.place);
            if turn == Ok(Turn::Asked) {
                return Ok(false);
            }
            self.place += 1;
            turn?;
        }
        self.place = 0;
        self.look_at = self.next_look(now);
        Ok(true)
    }

    /// Marks a certificate to be made again although its file is valid, because the keeper cannot use it.
    /// [`go_on`](Self::go_on) makes it. Returns whether it is one of the local CA.
    pub(crate) fn make_again(&mut self, chain: &Path) -> bool {
        let index = self.index_of(chain);
        if let Some(index) = index {
            self.list[index].in_any_case = true;
        }
        index.is_some()
    }

    /// Whether this certificate is made as soon as another process has finished with its own.
    pub(crate) fn is_late(&self, chain: &Path) -> bool {
        self.index_of(chain)
            .is_some_and(|index| self.list[index].is_late)
    }

    fn index_of(&self, chain: &Path) -> Option<usize> {
        let mut list = self.list.iter();
        list.position(|local| local.certificate.chain == chain)
    }

    /// Renews those for which it is time. Returns whether one was made that was late.
    pub(crate) fn tick(&mut self, now: Instant) -> bool {
        if now < self.look_at && self.making.is_none() {
            return false;
        }
        while let Err(cause) = self.go_on(now) {
            let index = self.place.saturating_sub(1);
            self.list[index].cannot_be_renewed(cause);
        }
        std::mem::take(&mut self.is_late_made)
    }

    /// Another configuration is in force, which makes them.
    pub(crate) fn give_up(&mut self) {
        (self.making, self.lock, self.place) = (None, None, 0);
    }

    /// When [`tick`](Self::tick) has something to do besides what the keeper's answers bring.
    pub(crate) fn deadline(&self) -> Instant {
        self.look_at
    }

    fn next_look(&self, now: Instant) -> Instant {
        let is_late = self.list.iter().any(|local| local.is_late);
        now + if is_late { LOCK_PAUSE } else { LOOK_EVERY }
    }

    /// Makes the certificate if it is missing, is for other names, is of another authority, has lived for two thirds of its time, or
    /// is to be made in any case. It is late if another process has the lock.
    fn renew(&mut self, index: usize) -> Result<Turn, String> {
        let turn = self.try_renew(index);
        if turn != Ok(Turn::Asked) {
            (self.lock, self.making) = (None, None);
        }
        let local = &mut self.list[index];
        match &turn {
            Ok(Turn::Asked) => {}
            Ok(Turn::Done) => {
                self.is_late_made |= local.is_late;
                (local.is_late, local.in_any_case) = (false, false);
                local.failed = None;
            }
            Ok(Turn::Locked) if local.is_late => {}
            Ok(Turn::Locked) => {
                local.failed = None;
                log::warn!(
                    "[certificate.{}]: another process makes certificates of the local CA: this one is made when that has ended, or after \
                     {LOCK_LIFE:?}",
                    local.certificate.name
                );
                local.is_late = true;
            }
            Err(_) => local.is_late = false,
        }
        turn
    }

    fn try_renew(&mut self, index: usize) -> Result<Turn, String> {
        loop {
            if let Some(making) = &self.making {
                let Some(public) = making.answer.take() else {
                    return Ok(Turn::Asked);
                };
                if let Some(making) = self.making.take()
                    && self.install(making, &public?, index)?
                {
                    return Ok(Turn::Done);
                }
            }
            let local = &self.list[index];
            if !local.in_any_case && self.is_good(local)? {
                return Ok(Turn::Done);
            }
            if self.lock.is_none() {
                self.lock = Lock::take(&self.store, "local-ca", LOCK_LIFE)?;
                if self.lock.is_none() {
                    return Ok(Turn::Locked);
                }
                // Another node may have made it meanwhile.
                continue;
            }
            self.making = Some(match Issued::read(&self.store.root()) {
                None => self.make_authority()?,
                Some(_) => self.make_certificate(&self.list[index])?,
            });
        }
    }

    /// Puts what the keeper has made into its place. Returns whether that was the certificate, and not the authority.
    fn install(&self, making: Making, public: &[u8], index: usize) -> Result<bool, String> {
        let mut draft = Draft::new(&making.chain, 0o644)?;
        draft.write(public)?;
        making.key.install()?;
        draft.install()?;
        if making.is_authority {
            log::info!(
                "a local CA was made for names that no public authority signs: {}; weir trust says how to install it",
                making.chain.display()
            );
            return Ok(false);
        }
        let local = &self.list[index];
        log::info!(
            "[certificate.{}]: the local CA has signed it for {LEAF_DAYS} days, for {}",
            local.certificate.name,
            local.auto.names.join(", ")
        );
        Ok(true)
    }

    /// Whether nothing is to be done for a certificate.
    fn is_good(&self, local: &Local) -> Result<bool, String> {
        let Some(root) = Issued::read(&self.store.root()) else {
            return Ok(false);
        };
        if root.not_after <= now() {
            return Err(format!(
                "{}: the local CA has expired; remove the file, and install the new one that weir makes (weir trust)",
                self.store.root().display()
            ));
        }
        let issued = Issued::read(&local.certificate.chain);
        Ok(issued.is_some_and(|issued| {
            is_issued(&issued, &local.auto.names)
                && issued.issuer == root.subject
                // It is not valid yet if it was made by a clock that was set back since.
                && (issued.not_before..issued.renew_at()).contains(&now())
                && local.certificate.key_file().exists()
        }))
    }

    fn make_authority(&self) -> Result<Making, String> {
        let (root, key) = (self.store.root(), self.store.root_key());
        let permitted = LOCAL_DOMAINS.iter().chain(LOCAL_NETWORKS);
        let permitted = permitted.map(|place| (*place).to_owned()).collect();
        self.make(Product::Authority, (permitted, ROOT_DAYS), (&root, &key))
    }

    fn make_certificate(&self, local: &Local) -> Result<Making, String> {
        let Certificate { chain, key, .. } = &local.certificate;
        let key = key.as_ref().unwrap_or(chain);
        self.store.make_folder_of(chain)?;
        let authority_key = open(&self.store.root_key())?;
        let product = Product::Certificate { authority_key };
        let names = local.auto.names.clone();
        self.make(product, (names, LEAF_DAYS), (chain, key))
    }

    /// Lets the keeper make a key and a certificate.
    fn make(
        &self,
        product: Product,
        (names, days): (Vec<String>, u32),
        (chain, key): (&Path, &Path),
    ) -> Result<Making, String> {
        let is_authority = matches!(product, Product::Authority);
        let key = Draft::new(key, 0o600)?;
        let file = key.file().try_clone().map_err(|error| error.to_string())?;
        let order = Order {
            product,
            names,
            days,
            key: file.into(),
        };
        Ok(Making {
            is_authority,
            key,
            chain: chain.to_owned(),
            answer: self.keeper.borrow_mut().make(order),
        })
    }
}

impl Local {
    fn cannot_be_renewed(&mut self, cause: String) {
        if self.failed.as_ref() != Some(&cause) {
            log::error!(
                "[certificate.{}] cannot be renewed: {cause}",
                self.certificate.name
            );
        }
        self.failed = Some(cause);
    }
}

fn open(path: &Path) -> Result<OwnedFd, String> {
    let file = File::open(path).map_err(|error| {
        format!(
            "{}: {error}; without this key, remove root.pem beside it, and weir makes a new local CA",
            path.display()
        )
    })?;
    Ok(file.into())
}

/// Life of a certificate. It is renewed at two thirds of it.
const LEAF_DAYS: u32 = 60;

/// Life of the authority. It has to be installed again after it.
const ROOT_DAYS: u32 = 3650;

/// How often it is looked whether one must be renewed.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A certificate takes milliseconds. After this a lock is from a node that was killed.
const LOCK_LIFE: Duration = Duration::from_secs(20);

/// The pause between two attempts to take a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(100);
