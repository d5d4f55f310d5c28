#include "server/node/flags/queries.h"
