#!/bin/sh
# Gives the files of packaging/kubernetes to a real API server of Kubernetes, which refuses what is wrong. Then podman runs a pod of it, and
# weir runs with each weir.toml as it would in a pod. It takes root:
#
#   setup/kubernetes.sh TARGET
#
# TARGET is cargo's target folder, with a release build of weir (WEIR_UNDER_TEST: another one) and weir-php. TARGET/kubernetes gets the programs: the API server, etcd, kubectl and helm,
# built from Go modules with the versions in setup/kubernetes/go.mod. They take many minutes, once. There is no kubelet: nobody but
# this script starts anything. Everything runs in namespaces of its own and ends with this script.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
files=$(realpath "$here/../packaging/kubernetes")
# As in setup/kubernetes/go.mod.
version=1.34.4
page='<?php echo "PHP of user ", posix_getuid(), PHP_EOL;'
# Where the definitions of other kinds of objects are.
keda=github.com/kedacore/keda/v2@v2.18.1
operator=github.com/prometheus-operator/prometheus-operator@v0.85.0

. "$(dirname "$0")/roots.sh"

main() {
    [ "$(id -u)" -eq 0 ] || die "network namespaces take root; run this as root"
    mkdir -p "$1/kubernetes"
    target=$(realpath "$1")
    folder=$target/kubernetes
    case ${2:-} in
    inside)
        mount -t tmpfs none "$work"
        ip link set lo up
        PATH="$folder:$PATH"
        export HOME="$work" KUBECONFIG="$work/kubeconfig"
        check_objects
        run_container
        run_pods
        echo "=== kubernetes: fine"
        ;;
    *)
        build
        make_base
        work=$(mktemp -d -p "$folder")
        trap 'rm -rf "$work" "$folder/store" "$folder/run"' EXIT
        weir=$(realpath "${WEIR_UNDER_TEST:-$target/release/weir}")
        export work weir
        unshare --net --pid --fork --kill-child --mount-proc "$here/kubernetes.sh" "$target" inside
        ;;
    esac
}

build() {
    versions=$(cat "$here/kubernetes/go.mod" "$here/kubernetes/go.sum" | sha256sum)
    . "$here/newer-go.sh"
    definitions_of "$keda" config/crd/bases/keda.sh_scaledobjects.yaml
    definitions_of "$operator" example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml
    definitions_of "$operator" example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml
    [ "$(cat "$folder/versions" 2>/dev/null)" != "$versions" ] || return 0
    minor=$(echo "$version" | cut -d . -f 2)
    # They say this version to each other, and charts ask for it.
    flags="-s -w -X k8s.io/component-base/version.gitVersion=v$version
        -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$minor
        -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$minor"
    for package in helm.sh/helm/v3/cmd/helm k8s.io/kubernetes/cmd/kubectl go.etcd.io/etcd/server/v3 \
        k8s.io/kubernetes/cmd/kube-apiserver; do
        name=$(basename "${package%/server/v3}")
        echo "setup: building $name"
        (cd "$here/kubernetes" && go build -mod=readonly -trimpath -ldflags "$flags" -o "$folder/$name" "$package")
    done
    echo "$versions" >"$folder/versions"
}

# definitions_of MODULE FILE: copies this file of a Go module, whose checksum the Go command verifies.
definitions_of() {
    mkdir -p "$folder/definitions"
    [ ! -e "$folder/definitions/$(basename "$2")" ] || return 0
    module=$(cd / && go mod download -json "$1" | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p')
    install -m 644 "$module/$2" "$folder/definitions/"
}

check_objects() {
    start_server
    kubectl apply --server-side -f "$folder/definitions" >/dev/null
    kubectl wait --for condition=established --timeout 60s crd --all >/dev/null

    for file in one-pod gateways-and-pools keda hpa pod-monitor; do
        apply <"$files/$file.yaml" || die "the API server refuses $file.yaml"
        echo "=== $file.yaml: accepted"
    done
    expect_pods shop
    rules | apply || die "the API server refuses the rules of weir alerts"
    echo "=== the rules of weir alerts: accepted as a PrometheusRule"

    helm lint --strict --quiet "$files/chart"
    charts=0
    for values in image.tag=1 pools.enabled=true,autoscaling.kind=keda,podMonitor.enabled=true,ingress.enabled=true \
        pools.enabled=true,autoscaling.kind=hpa autoscaling.kind=keda autoscaling.kind=hpa,ingress.enabled=true; do
        install_chart "$values"
    done
    refuses_mistakes
}

start_server() {
    openssl genrsa -out "$work/key.pem" 2048 2>/dev/null
    echo 'secret,admin,admin,system:masters' >"$work/tokens"
    etcd --data-dir "$work/etcd" >"$work/etcd.log" 2>&1 &
    # Without a controller manager nobody makes the accounts that the plugin wants.
    kube-apiserver --etcd-servers http://127.0.0.1:2379 --cert-dir "$work/certificates" \
        --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --endpoint-reconciler-type none --secure-port 6443 \
        --service-cluster-ip-range 10.0.0.0/24 --token-auth-file "$work/tokens" --authorization-mode AlwaysAllow \
        --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$work/key.pem" \
        --service-account-signing-key-file "$work/key.pem" --disable-admission-plugins ServiceAccount \
        >"$work/server.log" 2>&1 &
    server=$!
    kubectl config set-cluster local --server https://127.0.0.1:6443 --insecure-skip-tls-verify >/dev/null
    kubectl config set-credentials admin --token secret >/dev/null
    kubectl config set-context local --cluster local --user admin >/dev/null
    kubectl config use-context local >/dev/null
    waited=0
    until kubectl get --raw /readyz >/dev/null 2>&1; do
        waited=$((waited + 1))
        if [ "$waited" -gt 600 ] || ! kill -0 "$server"; then
            tail -n 20 "$work/etcd.log" "$work/server.log" >&2
            die "the API server does not start"
        fi
        sleep 0.2
    done
    echo "=== $(kubectl version | sed -n 's/^Server Version/Kubernetes/p')"
}

# apply FLAG...: objects on standard input. Fields that the API does not know are errors, and warnings too.
apply() {
    kubectl apply --server-side --force-conflicts --validate=strict --warnings-as-errors "$@" -f - >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        return 1
    }
}

# expect_pods NAMESPACE: nobody makes pods of the Deployments here, so this asks whether they would be admitted: the namespaces refuse
# what is not restricted.
expect_pods() {
    [ "$(kubectl get namespace "$1" -o 'jsonpath={.metadata.labels.pod-security\.kubernetes\.io/enforce}')" = restricted ]
    for deployment in $(kubectl -n "$1" get deployments -o name); do
        pod_of "$1" "$deployment" | kubectl create --dry-run=server -f - >/dev/null || die "a pod of $deployment is refused"
        echo "=== $1: a pod of $deployment is admitted"
    done
}

pod_of() {
    kubectl -n "$1" get "$2" -o json | python3 -c '
import json, sys
template = json.load(sys.stdin)["spec"]["template"]
metadata = dict(template["metadata"], name="tried", namespace=sys.argv[1])
json.dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}, sys.stdout)' "$1"
}

# As docs/kubernetes.md says it.
rules() {
    printf 'apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: weir, namespace: shop}\nspec:\n'
    "$weir" alerts --prometheus | sed 's/^/  /'
}

# install_chart VALUES: installs the chart with these values in a namespace of its own, and upgrades it.
install_chart() {
    charts=$((charts + 1))
    namespace=chart$charts
    kubectl create namespace "$namespace" >/dev/null
    kubectl label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted >/dev/null
    helm template site "$files/chart" --namespace "$namespace" --set "$1" | apply --dry-run=server ||
        die "the API server refuses the chart with $1"
    helm install site "$files/chart" --namespace "$namespace" --set "$1" >/dev/null
    helm upgrade site "$files/chart" --namespace "$namespace" --reuse-values --set workers=4 >/dev/null
    expect_pods "$namespace"
    echo "=== chart: installed and upgraded with $1"
}

# A check that accepts everything is none.
refuses_mistakes() {
    sed 's/readinessProbe/readynessProbe/' "$files/one-pod.yaml" | apply 2>/dev/null && die "an unknown field was accepted"
    sed 's/jobLabel/jobLable/' "$files/pod-monitor.yaml" | apply 2>/dev/null && die "an unknown field of a PodMonitor was accepted"
    if pod_of shop deployment/shop | sed 's/"runAsNonRoot": true/"runAsNonRoot": false/' |
        kubectl create --dry-run=server -f - >/dev/null 2>&1; then
        die "a pod as root was admitted"
    fi
    ! helm template site "$files/chart" --set shutdwn.delay=1 >/dev/null 2>&1 || die "an unknown value was accepted"
    echo "=== mistakes are refused"
}

# Debian's PHP for an image; TARGET/kubernetes/php.tar.
make_base() {
    [ ! -e "$folder/php.tar" ] || return 0
    # shellcheck disable=SC2016
    mirror=$(mirror)
    mmdebstrap --quiet --variant=minbase --include=php-fpm bookworm "$folder/php.part.tar" "deb $mirror bookworm main"
    mv "$folder/php.part.tar" "$folder/php.tar"
}

# A pod of one-pod.yaml as a container: the runtime's seccomp profile, its users, its volumes.
run_container() {
    printf '[storage]\ndriver = "overlay"\nrunroot = "%s"\ngraphroot = "%s"\n' "$folder/run" "$folder/store" >"$work/storage.conf"
    # The usual limits may be higher than this machine allows.
    printf '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n' >"$work/containers.conf"
    export CONTAINERS_STORAGE_CONF="$work/storage.conf" CONTAINERS_CONF="$work/containers.conf"
    echo "$page" >"$work/index.php"
    image=$(buildah from scratch)
    buildah add --quiet "$image" "$folder/php.tar" / >/dev/null
    buildah copy --quiet "$image" "$weir" /usr/local/bin/weir >/dev/null
    buildah copy --quiet "$image" "$target"/php/weir-php* /usr/local/lib/weir/ >/dev/null
    buildah copy --quiet "$image" "$work/index.php" /srv/shop/public/index.php >/dev/null
    buildah config --entrypoint '["/usr/local/bin/weir"]' "$image"
    buildah commit --quiet --rm "$image" registry.example/shop:1 >/dev/null

    # What takes a kubelet: podman publishes no ports here, and its probes need systemd.
    pod_of shop deployment/shop | python3 -c '
import json, sys
pod = json.load(sys.stdin)
pod["spec"].update(hostNetwork=True, restartPolicy="Never")
for name in "ports", "startupProbe", "readinessProbe", "livenessProbe":
    del pod["spec"]["containers"][0][name]
json.dump(pod, sys.stdout)' >"$work/pod.json"
    kubectl -n shop get configmap shop -o json >"$work/configmap.json"
    podman --runtime runc --cgroup-manager cgroupfs play kube --log-driver k8s-file --configmap "$work/configmap.json" \
        "$work/pod.json" >"$work/played" 2>&1 || {
        cat "$work/played" >&2
        die "podman does not run the pod"
    }
    log=$work/played
    expect_page
    podman --runtime runc --cgroup-manager cgroupfs kill --signal TERM tried-weir >/dev/null
    until_true "the container is not ready" is_not_ready
    curl --silent --fail --max-time 5 http://127.0.0.1:8080/ >/dev/null || die "the container refuses a request in its delay"
    ended=$(podman --runtime runc --cgroup-manager cgroupfs wait tried-weir)
    [ "$ended" -eq 0 ] || die "the container ended with $ended"
    podman --runtime runc --cgroup-manager cgroupfs pod rm --force tried >/dev/null
    echo "=== one-pod.yaml: a container serves a page, answers after SIGTERM, and ends"
}

# Runs weir with each weir.toml that the API server has: as the user of the pods, without capabilities, with a read-only root, and with the
# folders that the pods may write to.
run_pods() {
    cp /etc/hosts "$work/hosts"
    echo "127.0.0.1 shop-pool.shop.svc.cluster.local site-pool.chart2.svc.cluster.local" >>"$work/hosts"
    mount --bind "$work/hosts" /etc/hosts
    for writable in /srv /run /tmp /var/tmp; do
        mount -t tmpfs none "$writable"
        chmod 1777 "$writable"
    done
    mkdir -p /srv/bin /srv/lib/weir /srv/shop/public
    cp "$weir" /srv/bin/weir
    cp "$target"/php/weir-php* /srv/lib/weir/
    echo "$page" >/srv/shop/public/index.php
    mount -o remount,bind,ro /
    run_pod shop shop
    run_layout shop shop
    run_pod chart1 site-gateway
    run_layout chart2 site
}

# run_pod NAMESPACE CONFIGMAP: a page, and the end by SIGTERM alone.
run_pod() {
    start_pod "$1" "$2" ""
    expect_page
    kill -TERM "$pod"
    until_true "it is not ready" is_not_ready
    curl --silent --fail --max-time 5 http://127.0.0.1:8080/ >/dev/null || die "$1 $2 refuses a request in its delay"
    wait "$pod" || die "$1 $2 ended with $?"
    echo "=== $1 $2: serves a page, answers after SIGTERM, and ends"
}

# run_layout NAMESPACE NAME: a gateway in front of a pod with PHP. Both have the same network here, so the second has other ports.
run_layout() {
    start_pod "$1" "$2-pool" "s/:9180/:9181/; s/admin\.sock/pool.sock/"
    pool=$pod
    run_pod "$1" "$2-gateway"
    kill -TERM "$pool"
    # Skips the rest of the delay.
    /srv/bin/weir stop --admin unix:/run/weir/pool.sock >/dev/null
    wait "$pool" || die "$1 $2-pool ended with $?"
}

# start_pod NAMESPACE CONFIGMAP SED: as $pod.
start_pod() {
    install -d -o 33 -g 33 /run/weir
    kubectl -n "$1" get configmap "$2" -o 'jsonpath={.data.weir\.toml}' | sed "$3" >/srv/weir.toml
    setpriv --reuid 33 --regid 33 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all \
        /srv/bin/weir serve -c /srv/weir.toml >"$work/$1-$2.log" 2>&1 &
    pod=$!
    log=$work/$1-$2.log
    # It has read the file.
    until_true "$1 $2 serves" grep --quiet --no-messages "weir .* serves" "$log"
}

expect_page() {
    until_true "a page of PHP" is_page
}

is_page() {
    curl --silent --max-time 5 http://127.0.0.1:8080/any/path | grep --quiet --line-regexp "PHP of user 33"
}

is_not_ready() {
    [ "$(curl --silent --max-time 5 --output /dev/null --write-out '%{http_code}' http://127.0.0.1:9180/readyz)" = 503 ]
}

# until_true WHAT COMMAND...: waits for at most 60 s.
until_true() {
    what=$1
    shift
    waited=0
    until "$@"; do
        waited=$((waited + 1))
        if [ "$waited" -gt 300 ]; then
            cat "$log" >&2
            die "waited in vain: $what"
        fi
        sleep 0.2
    done
}

die() {
    echo "setup: $*" >&2
    exit 1
}

main "$@"
