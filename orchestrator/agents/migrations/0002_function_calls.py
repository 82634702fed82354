from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="modelendpoint",
            name="supports_tools",
            field=models.BooleanField(blank=True, null=True),
        ),
    ]
