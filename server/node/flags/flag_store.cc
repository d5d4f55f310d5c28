#include "server/node/flags/flag_store.h"
