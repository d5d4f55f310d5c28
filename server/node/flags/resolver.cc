#include "server/node/flags/snapshot.h"
