#include "client/tls_files.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>
#include <stdexcept>

#include "kernels/core/regular_file.h"

namespace hbmtune::client {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;  // the roots of a whole system have 250 KiB

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Certificate = std::unique_ptr<X509, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;

absl::Status Bad(const std::string& flag, const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(flag + " " + path + ": " + what);
}

absl::StatusOr<std::string> Read(const std::string& flag, const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        flag + " is missing: over TCP --tls-ca, --tls-cert and --tls-key go together");
  }
  try {
    return ReadRegularFile(path, kMostBytes);
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(flag + ": " + error.what());
  }
}

// The first certificate, which is the holder's own.
Certificate ParseCertificate(const std::string& pem) {
  std::unique_ptr<BIO, Free> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

Key ParseKey(const std::string& pem) {
  std::unique_ptr<BIO, Free> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, const_cast<char*>("")));
  ERR_clear_error();
  return key;
}

absl::Status CheckDates(X509* certificate, const std::string& path) {
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) <= 0) {
    return Bad("--tls-cert", path, "the certificate has expired");
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    return Bad("--tls-cert", path, "the certificate is not valid yet");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsSet> ReadTlsSet(const TlsPaths& paths) {
  auto roots = Read("--tls-ca", paths.roots);
  if (!roots.ok()) return roots.status();
  auto pem = Read("--tls-cert", paths.certificate);
  if (!pem.ok()) return pem.status();
  auto key_pem = Read("--tls-key", paths.key);
  if (!key_pem.ok()) return key_pem.status();
  constexpr const char* kNoCertificate = "there is no whole PEM certificate in it";
  if (ParseCertificate(*roots) == nullptr) return Bad("--tls-ca", paths.roots, kNoCertificate);
  const Certificate own = ParseCertificate(*pem);
  if (own == nullptr) return Bad("--tls-cert", paths.certificate, kNoCertificate);
  const Key key = ParseKey(*key_pem);
  if (key == nullptr) {
    return Bad("--tls-key", paths.key, "there is no whole PEM key without a password in it");
  }
  if (X509_check_private_key(own.get(), key.get()) != 1) {
    ERR_clear_error();
    return Bad("--tls-key", paths.key, "it is not the key of " + paths.certificate);
  }
  if (absl::Status status = CheckDates(own.get(), paths.certificate); !status.ok()) return status;
  return TlsSet{*roots, *pem, *key_pem};
}

}  // namespace hbmtune::client
