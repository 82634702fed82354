from __future__ import annotations

from django.contrib.auth import views
from django.urls import path

from orchestrator.projects.views import join

urlpatterns = [
    path("join/<str:secret>/", join, name="join"),
    path("login/", views.LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", views.LogoutView.as_view(), name="logout"),
    path("password/", views.PasswordChangeView.as_view(), name="password_change"),
    path("password/done/", views.PasswordChangeDoneView.as_view(), name="password_change_done"),
]
