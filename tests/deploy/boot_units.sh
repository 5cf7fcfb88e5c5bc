#!/usr/bin/env bash
# Boots Debian with systemd as process 1 in an emulated machine, installs hbmtune there from a build
# folder, and runs check_units.py inside. By hand, as root: some ten minutes, 6 GiB of disk.
set -euo pipefail

if [[ $# -lt 1 || $# -gt 2 || $1 == -* ]]; then
  cat >&2 <<EOF
usage: tests/deploy/boot_units.sh BUILD_DIR [WORK_DIR]
  BUILD_DIR  a release build with its tests, made on this release of Debian
  WORK_DIR   keeps the tree, and takes it up again; by default a temporary folder that is removed
needs: debootstrap qemu-system-x86 e2fsprogs, and root
EOF
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1")
for program in debootstrap qemu-system-x86_64 mke2fs cmake; do
  command -v "$program" > /dev/null || { echo "boot_units: $program is missing" >&2; exit 2; }
done
qemu=
work=${2:-$(mktemp -d -t hbmtune-boot-XXXXXX)}
mkdir -p "$work"
clean_up() {
  [[ -z $qemu ]] || kill "$qemu" 2> /dev/null || true
  rm -f "$work/disk.img"
  [[ -n $keep ]] || rm -rf "$work"
}
keep=${2:-}
trap clean_up EXIT
root=$work/root

# The packages of the libraries that the programs are linked with.
libraries() {
  local file
  ldd "$build"/bin/hbmtune* "$build/tests/comm_test" | awk '$2 == "=>" { print $3 }' | sort -u \
    | while read -r file; do dpkg-query -S "*/${file##*/}" 2> /dev/null; done \
    | cut -d: -f1 | grep '^lib' | grep -v -e '-dev$' -e '-dbg$' | sort -u | paste -sd,
}

if ! compgen -G "$root/boot/vmlinuz-*" > /dev/null; then
  suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
  debootstrap --variant=minbase --include="systemd-sysv,dbus,udev,linux-image-amd64,kmod,python3,\
procps,iproute2,util-linux,$(libraries)" "$suite" "$root" > "$work/debootstrap.log" 2>&1 \
    || { tail -n 5 "$work/debootstrap.log" >&2; exit 1; }
fi
DESTDIR=$root cmake --install "$build" --prefix /usr > "$work/install.log"
install -D "$build/tests/comm_test" "$root/usr/libexec/hbmtune-check/comm_test"
install -D "$here/check_units.py" "$root/usr/libexec/hbmtune-check/check_units.py"
cat > "$root/etc/systemd/system/hbmtune-check.service" <<'EOF'
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'exec > /dev/ttyS1 2>&1; \
  systemctl --version | head -n 1; uname -r; \
  python3 /usr/libexec/hbmtune-check/check_units.py && echo all-checks-passed \
  || journalctl -b --no-pager -u "hbmtune*" | tail -n 60'
ExecStopPost=systemctl --no-block poweroff
EOF
wants=$root/etc/systemd/system/multi-user.target.wants
mkdir -p "$wants"
ln -sf ../hbmtune-check.service "$wants/hbmtune-check.service"

rm -f "$work/disk.img" "$work/checks.log"
mke2fs -q -F -t ext4 -d "$root" "$work/disk.img" 4G
timeout 3600 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 4096 -nodefaults \
  -display none -no-reboot -device virtio-rng-pci -kernel "$(ls "$root"/boot/vmlinuz-*)" \
  -initrd "$(ls "$root"/boot/initrd.img-*)" -append "root=/dev/vda rw console=ttyS0 panic=-1" \
  -drive "file=$work/disk.img,format=raw,if=virtio,cache=unsafe" \
  -serial "file:$work/console.log" -serial "file:$work/checks.log" &
qemu=$!
wait "$qemu" || { tail -n 5 "$work/console.log" >&2; exit 1; }
qemu=
tr -d '\r' < "$work/checks.log"
grep -q all-checks-passed "$work/checks.log"
