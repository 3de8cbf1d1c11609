# What tools/repository, tools/release and tools/verify-release share about GnuPG; they source it.

die() {
	echo "$1" >&2
	exit 1
}

# signing_key prints the fingerprint of the secret key KEY, or says why it cannot sign.
signing_key() {
	local name=$1 kind validity usage fingerprint= found=0 state=
	[ -n "$name" ] || die "no key: give KEY=FINGERPRINT of a secret key in GnuPG's keyring (GNUPGHOME names another one)"
	while IFS=: read -r kind validity _ _ _ _ _ _ _ fingerprint_or_name _ usage _; do
		case $kind in
		sec)
			found=$((found + 1))
			state=$validity usages=$usage
			;;
		fpr) [ -n "$fingerprint" ] || fingerprint=$fingerprint_or_name ;;
		esac
	done < <(gpg --batch --with-colons --list-secret-keys "$name" 2>/dev/null)
	case $found in
	0) die "there is no secret key $name in GnuPG's keyring (GNUPGHOME names another one)" ;;
	1) ;;
	*) die "$name names $found secret keys: give the fingerprint of one" ;;
	esac
	case $state in
	e) die "the key $name has expired: extend it (gpg --quick-set-expire) or use another one" ;;
	r) die "the key $name is revoked: use another one" ;;
	esac
	case $usages in
	*S*) ;;
	*) die "the key $name cannot sign: use another one" ;;
	esac
	echo "$fingerprint"
}

# new_directory prints a directory for what becomes DIRECTORY when it is complete.
new_directory() {
	[ ! -e "$1" ] || die "$1 exists already: remove it, or name another directory"
	mkdir -p "$(dirname "$1")"
	mktemp -d "$(cd "$(dirname "$1")" && pwd)/.$(basename "$1").XXXXXX"
}
