# In place of python:3.11-slim where no image can be pulled: Debian with its own Python 3.11, made by mmdebstrap.
FROM scratch
ADD rootfs.tar /
# The package registry of this machine may have a certificate of its own.
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt
