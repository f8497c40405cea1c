//! Checks the files of `basic_auth`: they are there, the gateway can read them, and each line is a user's.

use std::path::Path;

use super::Pass;
use crate::model::BasicAuth;

impl Pass<'_> {
    pub(super) fn basic_auth(&mut self) {
        let config = &self.checked.config;
        for site in &config.sites {
            let of_site = site.settings.basic_auth.as_ref();
            if let Some(auth) = of_site {
                self.users(&format!("site.{}.basic_auth", site.name), auth);
            }
            for (index, route) in site.routes.iter().enumerate() {
                let of_route = route.settings.basic_auth.as_ref();
                if let Some(auth) = of_route.filter(|auth| Some(*auth) != of_site) {
                    self.users(
                        &format!("site.{}.route[{index}].basic_auth", site.name),
                        auth,
                    );
                }
            }
        }
    }

    fn users(&mut self, at: &str, auth: &BasicAuth) {
        let file = &auth.file;
        if let Some(chroot) = &self.checked.config.server.chroot
            && !file.starts_with(chroot)
        {
            let message = format!(
                "the gateway is in the chroot {} and cannot read {}",
                chroot.display(),
                file.display()
            );
            return self.error(at, message, "move the file inside the chroot");
        }
        if !self.secret(at, file, CREATE) {
            return;
        }
        self.readable_by_gateway(at, file);
        if let Err(faults) = self.machine.users(file) {
            for fault in faults {
                self.error(at, format!("{}: {fault}", file.display()), "");
            }
        }
    }

    fn readable_by_gateway(&mut self, at: &str, file: &Path) {
        let Some(user) = self.gateway_user() else {
            return;
        };
        if let Some(barrier) = self.machine.barred(file, &user) {
            let barrier = barrier.display();
            let message = format!(
                "{user} cannot read {barrier}, so requests that need a password are answered with 500"
            );
            let hint = format!("chown root:{user} {barrier} and chmod g+r {barrier}");
            self.warning(at, message, &hint);
        }
    }
}

const CREATE: &str = "create one: htpasswd -cB FILE USER";
