#include "daemon/net/tls_files.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "daemon/base/unique_fd.h"

namespace hbmtune::daemon {
namespace {

namespace fs = std::filesystem;

constexpr char kCertificate[] = "certificate.pem";
constexpr char kKey[] = "key.pem";
constexpr char kRoots[] = "roots.pem";

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Certificate = std::unique_ptr<X509, Free>;

absl::Status Bad(const std::string& what) { return absl::FailedPreconditionError(what); }

// Every certificate of a PEM file; nothing if one of them is broken, or there is none.
std::vector<Certificate> ReadCertificates(const std::string& text) {
  std::unique_ptr<BIO, Free> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  std::vector<Certificate> certificates;
  for (;;) {
    Certificate next(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (next == nullptr) break;
    certificates.push_back(std::move(next));
  }
  // The end of the file shows as PEM_R_NO_START_LINE; anything else is a broken certificate.
  const bool whole = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!whole) certificates.clear();
  return certificates;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::UnavailableError(absl::StrCat("cannot read ", path));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// In the order of their names; nothing of a folder or file that cannot be read.
std::string ReadLists(const std::string& folder) {
  std::map<std::string, std::string> lists;
  std::error_code error;
  if (folder.empty()) return "";
  for (fs::directory_iterator file(folder, error); !error && file != fs::directory_iterator();
       file.increment(error)) {
    if (auto text = ReadFile(file->path().string()); text.ok()) {
      lists[file->path().filename().string()] = *std::move(text);
    }
  }
  std::string all;
  for (const auto& [name, text] : lists) absl::StrAppend(&all, name, "\n", text);
  return all;
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid() ||
      write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTlsSet(const TlsSet& set, absl::Time now) {
  const std::vector<Certificate> chain = ReadCertificates(set.certificate);
  if (chain.empty()) return Bad("the certificate is no whole PEM file");
  if (ReadCertificates(set.roots).empty()) return Bad("the roots are no whole PEM file");
  std::unique_ptr<BIO, Free> bio(
      BIO_new_mem_buf(set.key.data(), static_cast<int>(set.key.size())));
  std::unique_ptr<EVP_PKEY, Free> key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, const_cast<char*>("")));
  ERR_clear_error();
  if (key == nullptr) return Bad("the key is no whole PEM file without a password");
  X509* own = chain.front().get();
  if (X509_check_private_key(own, key.get()) != 1) {
    ERR_clear_error();
    return Bad("the certificate does not belong to the key");
  }
  time_t seconds = absl::ToTimeT(now);
  if (X509_cmp_time(X509_get0_notAfter(own), &seconds) <= 0) {
    return Bad("the certificate has expired");
  }
  if (X509_cmp_time(X509_get0_notBefore(own), &seconds) > 0) {
    return Bad("the certificate is not valid yet");
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TlsFiles::Refresh(absl::Time now) {
  auto certificate = ReadFile(source_.certificate);
  auto key = ReadFile(source_.key);
  auto roots = ReadFile(source_.roots);
  for (const auto* text : {&certificate, &key, &roots}) {
    if (text->ok()) continue;
    refused_ = true;
    return text->status();
  }
  TlsSet set{*certificate, *key, *roots, ReadLists(source_.crl_directory)};
  if (set == last_read_) {
    refused_ = !last_good_;
    return false;
  }
  last_read_ = set;
  absl::Status status = CheckTlsSet(set, now);
  if (status.ok()) status = Install(set);
  last_good_ = status.ok();
  refused_ = !last_good_;
  if (!status.ok()) return status;
  return true;
}

absl::Status TlsFiles::Install(const TlsSet& set) {
  std::error_code error;
  if (number_ == 0) fs::remove_all(directory_, error);  // of an earlier daemon
  const fs::path folder = fs::path(directory_) / std::to_string(++number_);
  fs::create_directories(folder, error);
  fs::permissions(directory_, fs::perms::owner_all, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot make ", folder.string(), ": ", error.message()));
  }
  absl::Status status = WriteFile(folder / kCertificate, set.certificate);
  if (status.ok()) status = WriteFile(folder / kKey, set.key);
  // The number makes gRPC take roots for new that have not changed: it reads a list of revoked
  // certificates once for a set, and never again.
  const std::string roots = absl::StrCat(set.roots, "\n# set ", number_, "\n");
  if (status.ok()) status = WriteFile(folder / kRoots, roots);
  if (!status.ok()) return status;
  const fs::path link = fs::path(directory_) / "next";
  fs::create_directory_symlink(std::to_string(number_), link, error);
  fs::rename(link, fs::path(directory_) / "current", error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot swap: ", error.message()));
  fs::remove_all(fs::path(directory_) / std::to_string(number_ - 2), error);
  return absl::OkStatus();
}

TlsPaths TlsFiles::served() const {
  const std::string current = directory_ + "/current/";
  return {current + kCertificate, current + kKey, current + kRoots, source_.crl_directory};
}

}  // namespace hbmtune::daemon
