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
    thread,
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
}

/// Whether a lock that another process has is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// For as long as a lock lives.
    Yes,
    /// The next look tries again.
    No,
}

impl LocalCertificates {
    /// Makes what is missing. `None`: the configuration has no such certificate.
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
            })
        });
        let list: Vec<Local> = list.collect();
        if list.is_empty() {
            return Ok(None);
        }
        let certificates = LocalCertificates {
            keeper: keeper.clone(),
            store: Store::open(&config.tls.certificates)?,
            list,
            look_at: now + LOOK_EVERY,
        };
        for local in &certificates.list {
            certificates.renew(local, Wait::Yes, false)?;
        }
        Ok(Some(certificates))
    }

    /// Makes one anew although its file looks well: the keeper cannot use it. Returns whether it was made; `false`: it is not one of
    /// these.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub(super) fn make_again(&self, chain: &Path) -> Result<bool, String> {
        let mut list = self.list.iter();
        match list.find(|local| local.certificate.chain == chain) {
            Some(local) => self.renew(local, Wait::Yes, true).map(|()| true),
            None => Ok(false),
        }
    }

    /// Renews those for which it is time.
    pub(super) fn tick(&mut self, now: Instant) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK_EVERY;
        for index in 0..self.list.len() {
            let failed = self.renew(&self.list[index], Wait::No, false).err();
            let local = &mut self.list[index];
            if let Some(cause) = &failed
                && failed != local.failed
            {
                let name = &local.certificate.name;
                log::error!("[certificate.{name}] cannot be renewed: {cause}");
            }
            local.failed = failed;
        }
    }

    /// Makes the certificate if it is missing, is for other names, is of another authority, or has lived for two thirds of its
    /// time; or in any case.
    fn renew(&self, local: &Local, wait: Wait, in_any_case: bool) -> Result<(), String> {
        if !in_any_case && self.is_good(local)? {
            return Ok(());
        }
        let Some(_lock) = self.lock("local-ca", wait)? else {
            return Ok(());
        };
        self.make_authority()?;
        // Another node may have made it meanwhile.
        if !in_any_case && self.is_good(local)? {
            return Ok(());
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
        Ok(())
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
                && now() < issued.renew_at()
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

    fn lock(&self, name: &str, wait: Wait) -> Result<Option<Lock>, String> {
        let until = Instant::now() + LOCK_LIFE + Duration::from_secs(1);
        loop {
            let taken = Lock::take(&self.store, name, LOCK_LIFE)?;
            if taken.is_some() || wait == Wait::No {
                return Ok(taken);
            }
            if Instant::now() > until {
                return Err(
                    "another process has held the lock of the local CA for too long".into(),
                );
            }
            thread::sleep(LOCK_PAUSE);
        }
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
const LOCK_PAUSE: Duration = Duration::from_millis(20);
