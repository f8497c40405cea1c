#!/bin/sh
# Builds the package for a release of Debian, installs it in a machine of its own that runs systemd, and tries what an operator does
# with it: setup/packages.sh TARGET SUITE [PART]. It takes root.
#
# TARGET is cargo's target folder. TARGET/machine-SUITE is the system before the package is installed. Each part boots it anew, in
# memory, with the network of nobody else (systemd-nspawn). PART: only the parts whose name contains this.
set -eu

source=$(realpath "$(dirname "$0")/..")
target=$(realpath "$1") suite=$2
base=$target/machine-$suite
wanted=${3:-}

. "$source/setup/roots.sh"

main() {
    [ "$(id -u)" -eq 0 ] || die "a system takes root; run this as root"
    . /etc/os-release
    others=$suite
    [ "$suite" != "$VERSION_CODENAME" ] || others=
    "$source/setup/deb.sh" "$target" "$others"
    package=$(find "$target/deb" -name 'weir_*.deb' -printf '%T@ %p\n' | sort -n | sed -n '$s/^[^ ]* //p')
    [ -e "$base/installed" ] || make_base
    cp "$package" "$base/weir.deb"
    "$source/setup/dist.sh" "$target"
    cp "$target"/dist/weir-*.tar.gz "$base/weir.tar.gz"
    next_version
    part installs_and_serves
    part upgrades_under_load
    part reloads_when_php_changes
    part keeps_the_configuration_and_leaves_nothing
    part explains_a_port_that_is_taken
    part serves_wordpress_over_https
    part installs_the_archive
    echo "=== packages for $suite: fine"
}

# A system with the packages that the parts need, most of them only downloaded.
make_base() {
    rm -rf "$base"
    mirror=$(mirror)
    mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv,dbus,curl,procps,iproute2 \
        --customize-hook='chroot "$1" apt-get install --quiet --quiet --yes --download-only --option APT::Install-Recommends=true php-fpm ca-certificates logrotate nginx wordpress mariadb-server php-mysql php-dev gcc libc6-dev' \
        --skip=cleanup/apt,cleanup/reproducible "$suite" "$base" "deb $mirror $suite main"
    # Debian's own keeps packages from being downloaded in containers.
    rm -f "$base/etc/apt/apt.conf.d/docker-clean"
    echo machine >"$base/etc/hostname"
    printf '127.0.0.1 localhost machine shop.test\n' >"$base/etc/hosts"
    touch "$base/installed"
}

# The same package with a higher version.
next_version() {
    again=$(mktemp -d)
    dpkg-deb --raw-extract "$package" "$again/weir"
    sed -i 's/^Version: .*/&+1/' "$again/weir/DEBIAN/control"
    dpkg-deb --root-owner-group -Zgzip -z1 --build "$again/weir" "$base/weir-next.deb" >/dev/null
    rm -rf "$again"
}

# part NAME: runs the function of this name in a machine that was booted for it.
part() {
    case $1 in *"$wanted"*) ;; *) return 0 ;; esac
    began=$(date +%s)
    boot
    "$1"
    halt
    echo "=== $suite: $1, $(($(date +%s) - began)) s"
}

boot() {
    # Its output is a log: nobody types here.
    systemd-nspawn --register=no --keep-unit --private-network --volatile=overlay --directory="$base" --boot \
        --console=pipe >"$target/machine.log" 2>&1 </dev/null &
    machine=$!
    trap halt EXIT
    until leader=$(pgrep --parent "$machine" | head -n 1) && [ -n "$leader" ] && inside systemctl is-system-running --wait >/dev/null 2>&1; do
        kill -0 "$machine" 2>/dev/null || {
            cat "$target/machine.log" >&2
            die "the system does not boot"
        }
        # `degraded` counts: some units of Debian do not run in a container.
        ! inside systemctl is-system-running 2>/dev/null | grep --quiet degraded || break
        sleep 0.2
    done
    inside ip link set lo up
}

halt() {
    trap - EXIT
    kill -RTMIN+4 "$leader" 2>/dev/null || true
    # systemd-nspawn ends with the system.
    wait "$machine" || true
}

inside() {
    nsenter --target "$leader" --mount --uts --ipc --net --pid --root --wdns=/ env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@" </dev/null
}

apt() {
    inside apt-get --quiet --quiet --yes --option Dpkg::Use-Pty=0 "$@"
}

installs_and_serves() {
    apt install /weir.deb
    page "weir works"
    inside sh -c 'echo "<?php echo posix_getpwuid(posix_geteuid())[\"name\"], PHP_SAPI;" >/var/www/html/index.php'
    page www-datafpm-fcgi
    [ "$(inside systemctl is-enabled weir)" = enabled ] || die "the service is not enabled"
    inside systemctl reload weir
    inside weir check
    # A reload with a mistake fails, says what, and changes nothing.
    inside sh -c 'cp /etc/weir/weir.toml /saved; echo "[server" >>/etc/weir/weir.toml'
    if inside systemctl reload weir 2>/dev/null; then
        die "a wrong configuration was accepted"
    fi
    inside journalctl --unit weir --output cat --no-pager | grep --quiet 'weir.toml:[0-9]*:[0-9]*: error' || die "the mistake is not in the journal"
    page www-datafpm-fcgi
    # The unit hides /home, and weir says so.
    inside cp /saved /etc/weir/weir.toml
    hidden=/home
    inside mkdir --parents "$hidden/site"
    inside sed -i "s|root = .*|root = \"$hidden/site\"|" /etc/weir/weir.toml
    said=$(inside sh -c 'systemctl restart weir; journalctl --unit weir --output cat --no-pager --lines 10')
    echo "$said" | grep --quiet ProtectHome=no || die "the folder is missing without a reason: $said"
    inside systemctl stop weir
    size=$(inside dpkg-query --show --showformat '${Installed-Size}' weir)
    [ "$size" -le 30720 ] || die "the package is larger than 30 MB: $size KB"
}

upgrades_under_load() {
    apt install /weir.deb
    inside sh -c 'echo "<?php usleep(2000); echo \"served\";" >/var/www/html/index.php'
    page served
    before=$(inside systemctl show --property MainPID --value weir)
    inside weir bench -r 200 -t 20s --fail-below 100 http://127.0.0.1/ >"$target/machine.load" &
    load=$!
    apt install /weir-next.deb
    after=$(inside systemctl show --property MainPID --value weir)
    [ "$before" != "$after" ] || die "the running weir was not upgraded"
    wait "$load" || die "requests failed: $(cat "$target/machine.load")"
}

# page TEXT: waits for at most 20 s until the first page has this text.
page() {
    tries=0
    until said=$(inside curl --silent --show-error --max-time 5 --insecure --location "${2:-http://127.0.0.1/}" 2>&1) &&
        echo "$said" | grep --quiet --fixed-strings "$1"; do
        tries=$((tries + 1))
        [ "$tries" -le 100 ] || {
            inside journalctl --unit weir --output cat --no-pager --lines 30 >&2
            die "the page is: $said"
        }
        sleep 0.2
    done
}

reloads_when_php_changes() {
    apt install /weir.deb
    inside sh -c 'echo "<?php echo extension_loaded(\"mysqli\") ? \"with mysqli\" : \"without\";" >/var/www/html/index.php'
    page without
    apt install php-mysql
    page "with mysqli"
}

keeps_the_configuration_and_leaves_nothing() {
    apt install /weir.deb
    inside sh -c 'echo "# changed by the operator" >>/etc/weir/weir.toml'
    apt install /weir-next.deb
    inside grep --quiet "changed by the operator" /etc/weir/weir.toml || die "the changed configuration was replaced"
    apt remove weir
    ! inside curl --silent --max-time 5 http://127.0.0.1/ || die "weir still serves"
    inside test -e /etc/weir/weir.toml || die "remove has removed the configuration"
    ! inside test -e /var/www/html/index.html || die "remove has kept the page"
    apt install /weir.deb
    page "weir works"
    apt purge weir
    left=$(inside sh -c 'find / -xdev \( -path /proc -o -path /sys \) -prune -o -name "*weir*" -print' | grep -v '^/weir' || true)
    [ -z "$left" ] || die "purge has left: $left"
}

explains_a_port_that_is_taken() {
    apt install nginx
    page "Welcome to nginx"
    said=$(apt install /weir.deb 2>&1) || die "the installation failed: $said"
    echo "$said" | grep --quiet "already used by nginx" || die "the installation does not say who has the port: $said"
    page "Welcome to nginx"
    inside sed -i 's/0.0.0.0:80/0.0.0.0:8080/' /etc/weir/weir.toml
    inside systemctl start weir
    page "Welcome to nginx" http://127.0.0.1:8080/index.nginx-debian.html
}

# Three commands from a bare system with a WordPress folder to its first page over HTTPS; then WordPress itself, within the unit's limits.
serves_wordpress_over_https() {
    apt install wordpress mariadb-server php-mysql
    inside cp --recursive --dereference /usr/share/wordpress /var/www/wordpress
    inside sh -c "printf '<?php\ndefine(\"DB_NAME\", \"wp\"); define(\"DB_USER\", \"wp\"); define(\"DB_PASSWORD\", \"wp\"); define(\"DB_HOST\", \"localhost\");
        \$table_prefix = \"wp_\"; define(\"ABSPATH\", __DIR__ . \"/\"); require ABSPATH . \"wp-settings.php\";' >/var/www/wordpress/wp-config.php"
    inside chown --recursive www-data: /var/www/wordpress
    # Debian's WordPress brings Apache.
    inside systemctl disable --now apache2
    inside mariadb --execute "CREATE DATABASE wp; GRANT ALL ON wp.* TO wp@localhost IDENTIFIED BY 'wp'"
    started=$(date +%s)
    apt install /weir.deb
    inside weir init /var/www/wordpress --domain shop.test
    inside systemctl reload weir || {
        inside journalctl --unit weir --output cat --no-pager --lines 30 >&2
        die "weir does not take the configuration that weir init wrote"
    }
    page "WordPress" https://shop.test/wp-admin/install.php
    took=$(($(date +%s) - started))
    echo "=== $suite: from the package to the first page over HTTPS: $took s"
    [ "$took" -le 60 ] || die "that takes longer than a minute"
    inside curl --silent --insecure --output /dev/null "https://shop.test/wp-admin/install.php?step=2" --data-urlencode "weblog_title=A shop" \
        --data "user_name=admin&admin_password=a-long-password&admin_password2=a-long-password&admin_email=a@shop.test&Submit=Install"
    page "A shop" https://shop.test/
    inside curl --silent --insecure --cookie-jar /cookies --cookie wordpress_test_cookie=WP%20Cookie%20check --output /dev/null https://shop.test/wp-login.php \
        --data "log=admin&pwd=a-long-password&testcookie=1"
    nonce=$(inside curl --silent --insecure --cookie /cookies https://shop.test/wp-admin/media-new.php | sed -n 's/.*"_wpnonce":"\([0-9a-f]*\)".*/\1/p' | head -n 1)
    inside sh -c 'echo "a file" >/note.txt'
    inside curl --silent --insecure --cookie /cookies https://shop.test/wp-admin/async-upload.php --form "async-upload=@/note.txt;type=text/plain" \
        --form name=note.txt --form action=upload-attachment --form "_wpnonce=$nonce" | grep --quiet '"success":true' || die "the upload failed"
    page "a file" "$(inside sh -c 'find /var/www/wordpress/wp-content/uploads -name note.txt' | sed 's|^/var/www/wordpress|https://shop.test|')"
}

# The archive has weir-php for the PHP of the system on which it was made. For another one, it is compiled.
installs_the_archive() {
    apt install php-fpm ca-certificates
    [ -z "$others" ] || apt install php-dev gcc libc6-dev
    inside sh -c 'cd /root && tar --extract --file /weir.tar.gz && weir-*/install.sh'
    inside systemd-sysusers
    inside systemctl daemon-reload
    inside mkdir --parents /var/www/html
    inside sh -c 'echo "<?php echo PHP_SAPI;" >/var/www/html/index.php'
    inside systemctl enable --now weir
    page fpm-fcgi
    inside sh -c 'systemctl disable --now weir; "$HOME"/weir-*/install.sh --remove'
    ! inside test -e /usr/local/bin/weir || die "the archive's program is still there"
}

die() {
    echo "setup: $*" >&2
    exit 1
}

main
