/* A unit is taken out of SQL by hand, so Redis has promised more than SQL has. Two buyers, two units. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_B
#define STOCK 2
#define SQL_LOSES_A_UNIT
#include "../dropgate.pml"
