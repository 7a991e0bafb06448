# shellcheck shell=bash
# What tools/demo and tools/test share: find what this machine has, install what it lacks, say why.
#
# Everything is looked for by the thing itself (a compiler that links, a library the loader finds), not by the name
# of a package, so that a machine set up by other means is left alone. Packages come from the machine's own apt
# sources and crates from cargo's own registry; no address is written here.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
set_up_log=$repo/target/set-up.log
export CARGO_TARGET_DIR=$repo/target # the scripts look for what cargo built there

wanted=()      # packages to install, gathered first so that apt runs once
wanted_why=()  # the reason for each, in the same order
lists_fresh=no # whether apt's package lists were refreshed in this run

say() {
    printf 'kiln: %s\n' "$*"
}

fail() {
    printf 'kiln: %s\n' "$*" >&2
    exit 1
}

# want PACKAGE REASON: queues a package for install_wanted.
want() {
    wanted+=("$1")
    wanted_why+=("$2")
}

has() {
    command -v "$1" >/dev/null
}

# Packages are installed as root; proxies are named because sudo drops them from the environment.
as_root() {
    local settings=(DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1) name
    for name in http_proxy https_proxy no_proxy; do
        [[ -z ${!name-} ]] || settings+=("$name=${!name}")
    done
    if ((EUID == 0)); then
        env "${settings[@]}" "$@"
    elif [[ -t 0 ]]; then
        sudo env "${settings[@]}" "$@"
    else
        sudo -n env "${settings[@]}" "$@" # nobody is there to type a password
    fi
}

wanted_lines() {
    local i
    for i in "${!wanted[@]}"; do
        printf '    %s: %s\n' "${wanted[i]}" "${wanted_why[i]}"
    done
}

# Ends with the missing things by name. $1: what stands in the way.
fail_missing() {
    printf 'kiln: %s. Missing on this machine:\n' "$1" >&2
    wanted_lines >&2
    fail "install them and run this again, on Debian and Ubuntu: apt-get install --no-install-recommends ${wanted[*]}"
}

check_can_install() {
    has apt-get || fail_missing "this system has no apt-get to install packages with"
    ((EUID == 0)) || has sudo || fail_missing "installing packages needs root, and there is no sudo"
}

# A fresh machine has no lists or old ones. Failure is no end: the package may still be in apt's cache.
refresh_lists() {
    [[ $lists_fresh == no ]] || return 0
    lists_fresh=yes
    check_can_install
    say "refreshing apt's package lists"
    mkdir -p "$repo/target"
    as_root apt-get update -q -o APT::Update::Error-Mode=any -o Acquire::Retries=2 -o DPkg::Lock::Timeout=300 \
        >"$set_up_log" 2>&1 ||
        say "the lists could not be refreshed ($(error_line)); going on with what apt has"
}

# The line of the log that says best what went wrong: apt's errors come after its warnings.
error_line() {
    grep -m 1 '^E:' "$set_up_log" || grep -m 1 -E '^(sudo:|W:)' "$set_up_log" || tail -n 1 "$set_up_log"
}

# Installs all that was wanted with one call of apt. Never removes a package to make room for another.
install_wanted() {
    ((${#wanted[@]} > 0)) || return 0
    check_can_install
    refresh_lists
    say "installing what is missing (all of apt's output: target/set-up.log):"
    wanted_lines
    local start=$SECONDS
    as_root apt-get install -q -y --no-install-recommends --no-remove -o Acquire::Retries=2 \
        -o DPkg::Lock::Timeout=300 "${wanted[@]}" 2>&1 | tee -a "$set_up_log" | sed -un 's/^Need to get/kiln: to download:/p' ||
        fail_missing "apt could not install all of it ($(error_line))"
    say "installed in $((SECONDS - start)) s"
    wanted=() wanted_why=()
}

# The sources of this machine for release $1 (its updates and security included, third parties' not), one per line.
sources_of() {
    apt-get indextargets --format $'$(ORIGIN) deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' |
        awk -v release="$1" '($1 == "Debian" || $1 == "Ubuntu") && index($4, release) == 1 { print $2, $3, $4, $5 }' |
        sort -u
}

mirror_of() {
    sources_of "$1" | awk -v release="$1" '$3 == release { print $2; exit }'
}

# --- Debian packages beside the system ------------------------------------------------------------------------------

# $*: why it cannot be had here
not_here() {
    printf 'kiln: %s\n' "$*" >&2
    exit 3
}

# An apt of its own for these packages: this machine's mirror and settings, but no package counts as installed, so that
# all that is needed comes along.
private_apt() {
    apt-get -q -y -o "Dir::State=$work/apt" -o "Dir::State::status=$work/apt/status" -o "Dir::Cache=$work/apt" \
        -o "Dir::Etc::sourcelist=$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null -o APT::Sandbox::User=root \
        -o Acquire::Retries=2 -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        -o APT::Update::Error-Mode=any "$@" >>"$set_up_log" 2>&1
}

# download WHAT: the packages of the array `packages`, from the suites of the array `suites`, into $work.
download() {
    local mirror options='' keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    has apt-get || not_here "$1 comes as Debian packages, and this system has no apt-get"
    mirror=$(debian_mirror)
    [[ $mirror ]] || not_here "$1 comes from Debian's archive, which is not among this machine's package sources"
    [[ ! -e $keyring ]] || options="[signed-by=$keyring] "
    mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial"
    touch "$work/apt/status"
    printf "deb $options$mirror %s main\n" "${suites[@]}" >"$work/apt/sources.list"
    say "downloading $1"
    : >"$set_up_log"
    private_apt update || not_here "the package lists of ${suites[*]} cannot be had ($(error_line))"
    private_apt install --download-only --no-install-recommends -t "${suites[-1]}" "${packages[@]}" ||
        not_here "$1 cannot be had from ${suites[*]} ($(error_line))"
}

# The mirror that this machine takes Debian's packages from, whatever its release; nothing where there is none.
debian_mirror() {
    local system codename
    # shellcheck source=/dev/null
    read -r system codename < <(. /etc/os-release && echo "$ID ${VERSION_CODENAME-}")
    [[ $system == debian ]] || return 0
    [[ $(mirror_of "$codename") ]] || refresh_lists >&2
    mirror_of "$codename"
}

# Unpacks what was downloaded into $work/root.
unpack() {
    local package
    for package in "$work"/apt/archives/*.deb; do
        dpkg-deb --extract "$package" "$work/root"
    done
    rm -rf "$work/root/usr/share/"{doc,man,locale,icons,lintian,bug}
}

# --- Rust -----------------------------------------------------------------------------------------------------------

rust_needed() {
    sed -n 's/^rust-version = "\(.*\)"/\1/p' "$repo/Cargo.toml"
}

# Whether version $1 is at least $2.
at_least() {
    [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]
}

# Whether cargo or rustc $1 runs (a rustup proxy without a toolchain does not) and is as new as the crate needs.
is_new_enough() {
    local version
    version=$("$1" --version 2>/dev/null | awk 'NR == 1 { print $2 }') && at_least "$version" "$(rust_needed)"
}

# Prints where cargo may be, best first: the PATH, rustup's folder, Debian's, Ubuntu's folders by version.
toolchain_folders() {
    local on_path
    on_path=$(command -v cargo) && dirname "$on_path"
    printf '%s\n' "${CARGO_HOME:-$HOME/.cargo}/bin" /usr/bin
    compgen -G '/usr/lib/rust-*/bin' | sort -rV
    return 0
}

# Puts the first toolchain that is new enough in front of the PATH.
use_toolchain() {
    local folder
    while read -r folder; do
        if is_new_enough "$folder/cargo" && is_new_enough "$folder/rustc"; then
            export PATH="$folder:$PATH"
            return 0
        fi
    done < <(toolchain_folders)
    return 1
}

# The version of package $1 that apt would install, or nothing.
candidate() {
    apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: \([0-9][^ ]*\)$/\1/p'
}

# Prints the ending of the toolchain packages that are new enough: "" for a release whose own are, "-web" for Debian's
# rustc-web (built for its browsers), "-1.NN" for the newest of Ubuntu's.
toolchain_ending() {
    local ending
    while read -r ending; do
        if at_least "$(candidate "rustc$ending")" "$(rust_needed)" && [[ $(candidate "cargo$ending") ]]; then
            printf '%s\n' "$ending"
            return 0
        fi
    done < <(printf '%s\n' "" -web && apt-cache search --names-only '^rustc-1\.[0-9]+$' |
        sed -E 's/^rustc(-[0-9.]+) .*/\1/' | sort -rV)
    return 1
}

# Makes cargo and rustc of at least Cargo.toml's rust-version available, and the C linker that rustc calls.
set_up_rust() {
    local needed ending
    needed=$(rust_needed)
    links_c || { want gcc "the linker that rustc calls" && want libc6-dev "the C library to link with"; }
    if ! use_toolchain; then
        say "no cargo and rustc of version $needed or newer here; looking in apt's packages"
        queue_toolchain "$needed"
        install_wanted
        use_toolchain || fail "the Rust just installed does not run as $needed or newer: see $set_up_log"
    fi
    install_wanted
    links_c || fail "the C compiler cannot link a program: repair it with apt-get install --reinstall gcc libc6-dev"
    say "Rust: $(cargo --version), from $(dirname "$(command -v cargo)")"
}

# $1: the version needed
queue_toolchain() {
    local ending
    if has apt-get; then
        refresh_lists
        if ending=$(toolchain_ending); then
            want "rustc$ending" "the Rust compiler, $1 or newer"
            want "cargo$ending" "Rust's build tool, $1 or newer"
            return
        fi
    fi
    want "cargo and rustc >= $1" "Rust (a package such as rustc-web, or rustup)"
    printf 'kiln: no Rust of version %s or newer is here or in the packages apt knows. Missing:\n' "$1" >&2
    wanted_lines >&2
    fail "on Debian 12 enable its security updates, on Ubuntu 24.04 its updates and universe (with a network, run" \
        "apt-get update), or install Rust $1 with rustup; then run this again"
}

# The ending of the packages that the toolchain in use comes from; fails where it is no package's (rustup's).
toolchain_package_ending() {
    local owner
    owner=$(dpkg-query -S "$(readlink -f "$(command -v rustc)")" 2>/dev/null) || return 1
    owner=${owner%%:*}
    printf '%s\n' "${owner#rustc}"
}

# Formatter and linter, where the toolchain in use is packaged and its packages have them.
want_rust_components() {
    local ending
    ending=$(toolchain_package_ending) || return 0
    has_component fmt || ! [[ $(candidate "rustfmt$ending") ]] || want "rustfmt$ending" "the format check"
    has_component clippy || ! [[ $(candidate "rust$ending-clippy") ]] || want "rust$ending-clippy" "the lints"
}

has_component() {
    cargo "$1" --version >/dev/null 2>&1
}

links_c() {
    has cc && cc -x c - -o /dev/null <<<'int main(void) { return 0; }' 2>/dev/null
}

links_cpp() {
    has c++ && c++ -x c++ - -o /dev/null <<<$'#include <string>\nint main() { return std::string().size(); }' 2>/dev/null
}

# Downloads the crates that Cargo.lock names, unless they are here; from then on cargo works without a network.
set_up_crates() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p')
    if ! cargo fetch --locked --offline --target "$host" >/dev/null 2>&1; then
        say "downloading the crates that Cargo.lock names"
        cargo fetch --locked --target "$host" ||
            fail "crates are missing and could not be downloaded. With a network run: cargo fetch --locked." \
                "Not here (some only for other systems):$(missing_crates)"
    fi
    export CARGO_NET_OFFLINE=true
}

# Builds the tests of tests/$1 and prints where their executable is.
executable_of() {
    "$repo/tools/run-tests" --list "$1"
}

# The crates of Cargo.lock that cargo's cache does not have.
missing_crates() {
    local cache=${CARGO_HOME:-$HOME/.cargo}/registry/cache name version
    while read -r name version; do
        compgen -G "$cache/*/$name-$version.crate" >/dev/null || printf ' %s' "$name-$version"
    done < <(awk -F '"' '/^name/ { name = $2 } /^version/ { version = $2 } /^source/ { print name, version }' \
        "$repo/Cargo.lock")
}

# --- Vulkan ---------------------------------------------------------------------------------------------------------

has_vulkan_loader() {
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q 'libvulkan\.so\.1'
}

# Whether a file that matches pattern $2 lies in a vulkan/$1 folder, where the loader looks.
has_vulkan_file() {
    local folder
    for folder in /etc /usr/share /usr/local/share /usr/local/etc "${XDG_DATA_HOME:-$HOME/.local/share}"; do
        compgen -G "$folder/vulkan/$1/$2" >/dev/null && return 0
    done
    return 1
}

has_gpu() {
    compgen -G '/dev/dri/renderD*' >/dev/null || compgen -G '/dev/nvidia[0-9]*' >/dev/null
}

# A driver for the GPU that is here, else lavapipe, Mesa's driver for the CPU.
has_vulkan_driver() {
    [[ -z ${VK_DRIVER_FILES-}${VK_ICD_FILENAMES-} ]] || return 0 # the user chose
    if has_gpu; then has_vulkan_file icd.d '*.json'; else has_vulkan_file icd.d 'lvp_icd*.json'; fi
}

want_vulkan() {
    has_vulkan_loader || want libvulkan1 "the Vulkan loader, which Kiln opens at run time"
    if has_vulkan_driver; then return 0; fi
    if has_gpu; then
        want mesa-vulkan-drivers "Vulkan drivers for the GPU of this machine"
    else
        want mesa-vulkan-drivers "lavapipe, the Vulkan driver for a machine without a GPU"
    fi
}
