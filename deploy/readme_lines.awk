# The commands of the block that follows <!-- grpcurl --> in README.md, with the socket of -v socket=PATH.
/^<!-- grpcurl -->/ { marked = 1; next }
marked && /^```/ { if (++fences == 2) exit; next }
marked && fences { sub(/^S=.*/, "S=" socket); print }
