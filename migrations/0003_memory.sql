-- What was seen of the devices' memory. Times are microseconds since 1970, sizes bytes.

-- Used according to the driver, one row a device and minute; `start_time_us` is the minute's begin.
CREATE TABLE memory_minutes (
  device TEXT NOT NULL,
  start_time_us INTEGER NOT NULL,
  least_bytes INTEGER NOT NULL,
  mean_bytes REAL NOT NULL,
  most_bytes INTEGER NOT NULL,
  PRIMARY KEY (device, start_time_us)
) WITHOUT ROWID;

-- What the memory monitor found in the reports of a job.
CREATE TABLE findings (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  time_us INTEGER NOT NULL,
  device TEXT NOT NULL,
  job_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  step INTEGER NOT NULL,
  message TEXT NOT NULL,
  advice TEXT NOT NULL
);
CREATE INDEX findings_by_device ON findings (device, id);
CREATE INDEX findings_by_time ON findings (time_us);
CREATE INDEX studies_by_end ON studies (end_time_us);
CREATE INDEX studies_by_owner ON studies (owner_uid, state);
