//! Checks the files of certificates: they are there, fit together, and nobody else can read the keys.

use super::Pass;

impl Pass<'_> {
    pub(super) fn tls(&mut self) {
        let config = &self.checked.config;
        if config
            .listeners
            .iter()
            .all(|listener| listener.tls.is_none())
        {
            return;
        }
        let of_others = config.certificates.iter();
        for certificate in of_others.filter(|certificate| certificate.auto.is_none()) {
            let at = |key: &str| format!("certificate.{}.{key}", certificate.name);
            let key_at = at(if certificate.key.is_some() {
                "key"
            } else {
                "chain"
            });
            let (chain, key) = (&certificate.chain, certificate.key_file());
            if !self.file(&at("chain"), chain, CORRECT)
                || (certificate.key.is_some() && !self.secret(&key_at, key, CORRECT))
            {
                continue;
            }
            match self.machine.certificate(chain, key) {
                Ok(warnings) => {
                    for warning in warnings {
                        let (what, mend) = warning.split_once("; ").unwrap_or((&warning, ""));
                        self.warning(&at("chain"), format!("{}: {what}", chain.display()), mend);
                    }
                }
                Err((in_key, wrong)) => {
                    let (at, file) = match in_key {
                        true => (key_at, key),
                        false => (at("chain"), chain),
                    };
                    let (what, mend) = wrong.split_once("; ").unwrap_or((&wrong, CORRECT));
                    self.error(&at, format!("{}: {what}", file.display()), mend);
                }
            }
        }
        for site in &config.sites {
            let Some(auth) = &site.client_auth else {
                continue;
            };
            let at = format!("site.{}.client_ca", site.name);
            if self.file(&at, &auth.ca, CORRECT)
                && let Err(wrong) = self.machine.authorities(&auth.ca)
            {
                let mend = "name a file with the certificates of the authorities (PEM)";
                self.error(&at, format!("{}: {wrong}", auth.ca.display()), mend);
            }
        }
    }
}

const CORRECT: &str = "correct the path, or create the file";
