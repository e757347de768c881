"""Payloads of a vault in a bucket: S3, Google Cloud Storage, Azure, or a folder that several machines share."""
