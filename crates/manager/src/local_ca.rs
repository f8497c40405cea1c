//! weir's local authority: certificates for names that no public authority signs, made here and renewed in time.
//!
//! The keeper makes all keys and signs with the authority's key, which it gets by descriptor for each certificate. This file
//! decides what is to be made, and puts the results into the folder of certificates. From there they are used as all changed
//! files are.

use std::{
    cell::RefCell,
    fs::File,
    os::fd::OwnedFd,
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use weir_acme::{Draft, Issued, Lock, Store, is_issued, now};
use weir_config::{AutoCertificate, Certificate, Config, Issuer, LOCAL_DOMAINS, LOCAL_NETWORKS};
use weir_keeper::{Order, Product};

use super::keeper::Keeper;

/// The certificates of a configuration that the local authority signs.
#[derive(Debug)]
pub(super) struct LocalCertificates {
    keeper: Rc<RefCell<Keeper>>,
    store: Store,
    list: Vec<Local>,
    look_at: Instant,
}

/// One of them.
#[derive(Debug)]
struct Local {
    certificate: Certificate,
    auto: AutoCertificate,
    /// Why it could not be renewed, as the log says it.
    failed: Option<String>,
    /// It is to be made, but another process makes certificates just now.
    is_late: bool,
    /// It is to be made although its file looks well: the keeper cannot use it.
    in_any_case: bool,
}

impl LocalCertificates {
    /// Makes what is missing. `None`: the configuration has no such certificate. This thread is there for all pools and does not
    /// wait: what cannot be made just now is made later ([`tick`](Self::tick)).
    ///
    /// # Errors
    /// Why one of them cannot be made.
    pub(super) fn prepare(
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
        let mut certificates = LocalCertificates {
            keeper: keeper.clone(),
            store: Store::open(&config.tls.certificates)?,
            list,
            look_at: now + LOOK_EVERY,
        };
        for index in 0..certificates.list.len() {
            certificates.renew(index)?;
        }
        certificates.look_at = certificates.next_look(now);
        Ok(Some(certificates))
    }

    /// Makes one anew although its file looks well: the keeper cannot use it. Returns whether it was made; `false`: it is not one of
    /// these, or [late](Self::is_late).
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(super) fn make_again(&mut self, chain: &Path) -> Result<bool, String> {
        let Some(index) = self.index_of(chain) else {
            return Ok(false);
        };
        self.list[index].in_any_case = true;
        self.renew(index)?;
        if self.list[index].is_late {
            self.look_at = Instant::now() + LOCK_PAUSE;
        }
        Ok(!self.list[index].is_late)
    }

    /// Whether this certificate is made as soon as another process has finished with its own.
    pub(super) fn is_late(&self, chain: &Path) -> bool {
        self.index_of(chain)
            .is_some_and(|index| self.list[index].is_late)
    }

    fn index_of(&self, chain: &Path) -> Option<usize> {
        let mut list = self.list.iter();
        list.position(|local| local.certificate.chain == chain)
    }

    /// Renews those for which it is time. Returns whether one was made that was late.
    pub(super) fn tick(&mut self, now: Instant) -> bool {
        if now < self.look_at {
            return false;
        }
        let mut is_made = false;
        for index in 0..self.list.len() {
            let was_late = self.list[index].is_late;
            let failed = self.renew(index).err();
            let local = &mut self.list[index];
            is_made |= was_late && !local.is_late;
            if let Some(cause) = &failed
                && failed != local.failed
            {
                let name = &local.certificate.name;
                log::error!("[certificate.{name}] cannot be renewed: {cause}");
            }
            local.failed = failed;
        }
        self.look_at = self.next_look(now);
        is_made
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(super) fn deadline(&self) -> Instant {
        self.look_at
    }

    fn next_look(&self, now: Instant) -> Instant {
        let is_late = self.list.iter().any(|local| local.is_late);
        now + if is_late { LOCK_PAUSE } else { LOOK_EVERY }
    }

    /// Makes the certificate if it is missing, is for other names, is of another authority, has lived for two thirds of its time, or
    /// is to be made in any case. It is late if another process has the lock.
    fn renew(&mut self, index: usize) -> Result<(), String> {
        let made = self.try_renew(&self.list[index]);
        let local = &mut self.list[index];
        match &made {
            Ok(true) => (local.is_late, local.in_any_case) = (false, false),
            Ok(false) if local.is_late => {}
            Ok(false) => {
                log::warn!(
                    "[certificate.{}]: another process makes certificates of the local CA: this one is made when that has ended, or after \
                     {LOCK_LIFE:?}",
                    local.certificate.name
                );
                local.is_late = true;
            }
            Err(_) => local.is_late = false,
        }
        made.map(drop)
    }

    /// `false`: another process has the lock.
    fn try_renew(&self, local: &Local) -> Result<bool, String> {
        if !local.in_any_case && self.is_good(local)? {
            return Ok(true);
        }
        let Some(_lock) = Lock::take(&self.store, "local-ca", LOCK_LIFE)? else {
            return Ok(false);
        };
        self.make_authority()?;
        // Another node may have made it meanwhile.
        if !local.in_any_case && self.is_good(local)? {
            return Ok(true);
        }
        let Certificate {
            name, chain, key, ..
        } = &local.certificate;
        let key = key.as_ref().unwrap_or(chain);
        self.store.make_folder_of(chain)?;
        let authority_key = open(&self.store.root_key())?;
        let product = Product::Certificate { authority_key };
        let names = local.auto.names.clone();
        self.make(product, (names, LEAF_DAYS), (chain, key))?;
        log::info!(
            "[certificate.{name}]: the local CA has signed it for {LEAF_DAYS} days, for {}",
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

    /// Makes the authority if there is none.
    fn make_authority(&self) -> Result<(), String> {
        let (root, key) = (self.store.root(), self.store.root_key());
        if Issued::read(&root).is_some() {
            return Ok(());
        }
        let permitted = LOCAL_DOMAINS.iter().chain(LOCAL_NETWORKS);
        let permitted = permitted.map(|place| (*place).to_owned()).collect();
        self.make(Product::Authority, (permitted, ROOT_DAYS), (&root, &key))?;
        log::info!(
            "a local CA was made for names that no public authority signs: {}; weir trust says how to install it",
            root.display()
        );
        Ok(())
    }

    /// Lets the keeper make a key and a certificate, and puts both in their places.
    fn make(
        &self,
        product: Product,
        (names, days): (Vec<String>, u32),
        (chain, key): (&Path, &Path),
    ) -> Result<(), String> {
        let key = Draft::new(key, 0o600)?;
        let file = key.file().try_clone().map_err(|error| error.to_string())?;
        let order = Order {
            product,
            names,
            days,
            key: file.into(),
        };
        let public = self.keeper.borrow_mut().make(order)?;
        let mut draft = Draft::new(chain, 0o644)?;
        draft.write(&public)?;
        key.install()?;
        draft.install()
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
